package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"

	"github.com/coe-bridge/coe-bridge/files"
)

// serverTLS is the TLS configuration of the server, made again when a file changes.
type serverTLS struct {
	certificate tls.Certificate
	clients     *certificates // nil where none are asked for
	current     atomic.Pointer[tls.Config]
}

// openTLS follows the files of TLS, where there are any.
func (a *Access) openTLS(cfg Config, m *metrics) (*certificates, error) {
	if cfg.CertFile == "" {
		return nil, nil
	}
	s := &serverTLS{}
	if err := a.files.Follow(files.Set{
		Flag: "tls-cert", Paths: []string{cfg.CertFile, cfg.KeyFile}, Load: s.loadPair, Validity: files.ChainValidity,
	}); err != nil {
		return nil, err
	}
	a.tls = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil },
	}
	if cfg.ClientCAFile == "" {
		return nil, nil
	}
	s.clients = &certificates{tellRoles: cfg.ClientRolesFile != "", metrics: m}
	if err := a.files.Follow(files.Set{
		Flag: "client-ca", Paths: []string{cfg.ClientCAFile}, Load: s.loadTrust, Validity: files.AuthorityValidity,
	}); err != nil {
		return nil, err
	}
	if cfg.ClientRolesFile != "" {
		return s.clients, a.files.Follow(files.Set{Flag: "client-roles", Paths: []string{cfg.ClientRolesFile}, Load: s.clients.loadRoles})
	}
	return s.clients, nil
}

func (s *serverTLS) loadPair(contents [][]byte) error {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return fmt.Errorf("use it with --tls-key: %w", err)
	}
	s.certificate = pair
	s.rebuild()
	return nil
}

func (s *serverTLS) loadTrust(contents [][]byte) error {
	t, err := parseTrust(contents[0])
	if err != nil {
		return err
	}
	s.clients.trust.Store(t)
	s.rebuild()
	return nil
}

func (c *certificates) loadRoles(contents [][]byte) error {
	roles, err := parseCertificateRoles(contents[0])
	if err == nil {
		c.roles.Store(roles)
	}
	return err
}

// rebuild makes what the next handshake goes by. A certificate that tells a role is
// judged when a request comes, which then gets an answer that says what is wrong;
// one that is wanted of everybody opens the connection.
func (s *serverTLS) rebuild() {
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{s.certificate},
	}
	if s.clients != nil {
		cfg.ClientCAs, cfg.ClientAuth = s.clients.pool(), tls.RequireAndVerifyClientCert
		if s.clients.tellRoles {
			cfg.ClientAuth = tls.RequestClientCert
		}
	}
	s.current.Store(cfg)
}

func (c *certificates) pool() *x509.CertPool { return c.trust.Load().pool }
