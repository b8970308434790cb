package ovn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/ovsdb"
)

// certify writes a key and a certificate, signed by the parent or by itself, to
// files named after it.
func certify(t *testing.T, dir, name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for suffix, block := range map[string]*pem.Block{
		".cert": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, caKey := certify(t, dir, "ca", nil, nil)
	certify(t, dir, "server", ca, caKey)
	certify(t, dir, "client", ca, caKey)
	certify(t, dir, "stranger", nil, nil)

	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	require.NoError(t, err)
	require.NoError(t, free.Close())
	ovsdb.Start(t, "--remote=pssl:"+port+":127.0.0.1",
		"--private-key="+file("server.key"), "--certificate="+file("server.cert"), "--ca-cert="+file("ca.cert"))
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil && conn.Close() == nil
	}, 10*time.Second, time.Millisecond)

	cases := map[string]struct {
		key, cert, ca string
		load, connect string // errors
	}{
		"good":                   {"client.key", "client.cert", "ca.cert", "", ""},
		"unknown to the server":  {"stranger.key", "stranger.cert", "ca.cert", "", "connect to ssl:127.0.0.1:" + port},
		"server of another CA":   {"client.key", "client.cert", "stranger.cert", "", "unknown authority"},
		"key of another":         {"ca.key", "client.cert", "ca.cert", "load northbound certificate", ""},
		"CA is no certificate":   {"client.key", "client.cert", "ca.key", "no certificate in PEM form", ""},
		"CA is missing":          {"client.key", "client.cert", "none", "no such file", ""},
		"certificate is missing": {"client.key", "none", "ca.cert", "no such file", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config, err := ovn.LoadTLS(file(c.key), file(c.cert), file(c.ca))
			if c.load != "" {
				require.ErrorContains(t, err, c.load)
				return
			}
			require.NoError(t, err)
			b, err := ovn.New(ovn.Config{Endpoints: "ssl:127.0.0.1:" + port, TLS: config}, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			t.Cleanup(b.Close)
			_, err = b.Read(t.Context())
			if c.connect != "" {
				require.ErrorContains(t, err, c.connect)
				return
			}
			require.NoError(t, err)
			write(t, b, someModel(b))
		})
	}
}
