// Package pki creates valid and invalid certificates for tests, and servers that use them.
package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, as PEM.
type Pair struct{ Cert, Key []byte }

// Paths has the paths of the files of a Pair.
type Paths struct{ Cert, Key string }

// New creates an Authority that is valid for ten years.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Pool returns a pool with only the authority's certificate.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// TLS returns the pair for a server or a client.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	require.NoError(t, err)
	return c
}

// Until lets a certificate expire at a time.
func Until(end time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = end }
}

// NoHost removes the hosts from a certificate, as in Open vSwitch's certificates.
func NoHost(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, nil }

// Issue creates a certificate for clients, and for servers on 127.0.0.1. It is valid for a year. change can
// change it.
func (a *Authority) Issue(t testing.TB, name string, change ...func(*x509.Certificate)) Pair {
	t.Helper()
	key := newKey(t)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(leaf)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return Pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
}

// Write writes NAME.crt and NAME.key.
func (p Pair) Write(t testing.TB, dir, name string) Paths {
	t.Helper()
	paths := Paths{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	require.NoError(t, os.WriteFile(paths.Cert, p.Cert, 0o600))
	require.NoError(t, os.WriteFile(paths.Key, p.Key, 0o600))
	return paths
}

// Serve serves TLS with a certificate at an address of loopback until the test ends.
func Serve(t testing.TB, p Pair) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{p.TLS(t)}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(context.Background())
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// Dial makes one connection, and closes it.
func Dial(t testing.TB, address string, config *tls.Config) error {
	t.Helper()
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
