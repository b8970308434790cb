package files

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
)

// File is a file and the flag that names it, without dashes.
type File struct{ Flag, Path string }

// Client is the TLS configuration of a client. Each new connection uses the current files.
type Client struct {
	authorities atomic.Pointer[x509.CertPool]   // nil: the system's
	certificate atomic.Pointer[tls.Certificate] // nil: none
}

// Client follows the files of a TLS client: the trusted CAs, and the client certificate with
// its key. Without a path of ca the client trusts the system's CAs. Without a path of cert it
// has no certificate.
func (f *Follower) Client(ca, cert, key File) (*Client, error) {
	c := &Client{}
	if ca.Path != "" {
		if err := f.Follow(Set{Flag: ca.Flag, Paths: []string{ca.Path}, Load: c.loadAuthorities, Validity: AuthorityValidity}); err != nil {
			return nil, err
		}
	}
	if cert.Path == "" {
		return c, nil
	}
	return c, f.Follow(Set{
		Flag: cert.Flag, Paths: []string{cert.Path, key.Path}, Validity: ChainValidity,
		Load: func(contents [][]byte) error {
			if err := c.loadPair(contents); err != nil {
				return fmt.Errorf("use it with --%s: %w", key.Flag, err)
			}
			return nil
		},
	})
}

func (c *Client) loadAuthorities(contents [][]byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[0]) {
		return errors.New("there is no certificate in it")
	}
	c.authorities.Store(pool)
	return nil
}

func (c *Client) loadPair(contents [][]byte) error {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err == nil {
		c.certificate.Store(&pair)
	}
	return err
}

// Config returns the configuration for one connection, from the current files. The server's
// certificate must be for the host of the connection.
func (c *Client) Config() *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.authorities.Load()}
	if c.certificate.Load() != nil {
		// The certificate is also sent to a server that names other CAs, so that the server can
		// log why it rejects it.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.certificate.Load(), nil
		}
	}
	return out
}

// AnyHost returns a configuration for all connections, which uses the current files.
// The server's certificate must be signed by one of the CAs, and may be for any host or for
// none, as is usual with Open vSwitch and OVN. It needs a file of CAs: with the system's CAs
// any server on the Internet would be trusted.
func (c *Client) AnyHost() *tls.Config {
	out := c.Config()
	out.RootCAs = nil
	out.InsecureSkipVerify = true // VerifyConnection verifies the chain
	out.VerifyConnection = func(state tls.ConnectionState) error {
		authorities := c.authorities.Load()
		if authorities == nil {
			return errors.New("there are no CAs to verify the server's certificate")
		}
		return verifyChain(state.PeerCertificates, authorities)
	}
	return out
}

func verifyChain(chain []*x509.Certificate, authorities *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
