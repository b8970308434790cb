package odl_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
)

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)))
}

// TestConfig: an error in the configuration is reported, without the secrets in it.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  odl.Config
		says string
	}{
		"no URL":          {odl.Config{}, "want http://HOST:PORT"},
		"no scheme":       {odl.Config{URLs: "127.0.0.1:8181"}, "want http://HOST:PORT"},
		"another scheme":  {odl.Config{URLs: "ftp://a"}, "want http://HOST:PORT"},
		"password in URL": {odl.Config{URLs: "http://admin:secret@a:8181"}, "belong in a file"},
		"one of two":      {odl.Config{URLs: "http://a:8181,"}, "want http://HOST:PORT"},
		"dialect":         {odl.Config{URLs: "http://a:8181", Dialect: "draft-03"}, "want one of draft-02, rfc8040-oxygen, rfc8040-neon, rfc8040"},
		"no file":         {odl.Config{URLs: "http://a:8181", AuthFile: "/nonexistent"}, "no such file"},
		"no password":     {odl.Config{URLs: "http://a:8181", AuthFile: passwordFile(t, "secret")}, "want one line, user:password"},
		"two lines":       {odl.Config{URLs: "http://a:8181", AuthFile: passwordFile(t, "a:secret\nb:c")}, "want one line, user:password"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := odl.New(c.cfg, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// TestTLS: a server is trusted if the given CA signed its certificate, and for the names in
// it. No other server gets the password.
func TestTLS(t *testing.T) {
	c, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := x509.NewCertPool()
	authority.AddCert(server.Certificate())
	own := server.TLS.Certificates[0] // the server accepts any client certificate

	for name, c := range map[string]struct {
		tls  *tls.Config
		says string // in the error; empty for success
	}{
		"trusted": {tls: &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{own}}},
		// With TLS 1.3 the server refuses after the handshake, and the client may report that it cannot write.
		"no certificate of ours": {&tls.Config{RootCAs: authority, MaxVersion: tls.VersionTLS12}, "remote error: tls:"},
		"unknown authority":      {&tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{own}}, "unknown authority"},
		"another name":           {&tls.Config{RootCAs: authority, ServerName: "elsewhere.test", Certificates: []tls.Certificate{own}}, "elsewhere.test"},
		"the system's trust":     {nil, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, odl.Config{URLs: server.URL, TLS: always(c.tls), AuthFile: passwordFile(t, "admin:admin"), Timeout: patience})
			_, err := b.Read(t.Context())
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// always returns a function for one configuration of all connections.
func always(config *tls.Config) func() *tls.Config {
	if config == nil {
		return nil
	}
	return func() *tls.Config { return config }
}

// TestCertificateChanges: if the controller's certificate is not trusted any more, the backend
// sends it nothing, not even the password, until it has a trusted certificate again.
func TestCertificateChanges(t *testing.T) {
	c, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	var bad atomic.Bool
	good, other := server.TLS.Certificates[0], selfSigned(t)
	server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if bad.Load() {
			return &tls.Config{Certificates: []tls.Certificate{other}}, nil
		}
		return &tls.Config{Certificates: []tls.Certificate{good}}, nil
	}
	b := open(t, odl.Config{URLs: server.URL, TLS: always(&tls.Config{RootCAs: trusted}), AuthFile: passwordFile(t, "admin:admin"), Timeout: patience})
	write(t, b, odltest.PodsOf("a"))
	bad.Store(true)
	server.CloseClientConnections()
	c.Requests()
	for range 5 {
		_, err = b.Read(t.Context())
		require.ErrorContains(t, err, "certificate")
	}
	require.Empty(t, c.Requests())
	bad.Store(false)
	agree(t, b, odltest.PodsOf("a"))
}

// TestCertificatesAreRenewed: after the controller's CA and the bridge's certificate are
// replaced, the next connection uses the new ones.
func TestCertificatesAreRenewed(t *testing.T) {
	c, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	var now atomic.Pointer[tls.Config]
	now.Store(&tls.Config{RootCAs: x509.NewCertPool()})
	b := open(t, odl.Config{URLs: server.URL, TLS: now.Load, AuthFile: passwordFile(t, "admin:admin"), Timeout: patience})
	for _, step := range []struct {
		config *tls.Config
		says   string
	}{
		{&tls.Config{RootCAs: x509.NewCertPool()}, "unknown authority"},
		{&tls.Config{RootCAs: trusted, MaxVersion: tls.VersionTLS12}, "remote error: tls:"}, // see TestTLS
		{&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{server.TLS.Certificates[0]}}, ""},
	} {
		now.Store(step.config)
		_, err := b.Read(t.Context())
		if step.says != "" {
			require.ErrorContains(t, err, step.says)
			continue
		}
		require.NoError(t, err)
	}
}

// selfSigned returns a certificate that no CA has signed.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	text, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}
}
