package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServeRefuses(t *testing.T) {
	users := usersFile(t)
	data := t.TempDir()
	for _, c := range []struct {
		name, args string
		says       []string
	}{
		{"nothing given", "", []string{"nobody could log in", "--auth-file", "coe-bridge passwd USER", "--dev"}},
		{"no users", "--data-dir " + data, []string{"nobody could log in"}},
		{"no place for data", "--auth-file " + users, []string{"no place for data", "--data-dir", "--etcd-endpoints"}},
		{"two places for data", "--dev --data-dir " + data + " --etcd-endpoints http://127.0.0.1:1", []string{"two places for data", "give one of them"}},
		{"users are not there", "--data-dir " + data + " --auth-file /nonexistent", []string{"read --auth-file: stat /nonexistent: no such file"}},
		{"invalid list of users", "--data-dir " + data + " --auth-file " + file(t, "users", "admin:admin\n"), []string{"read --auth-file: line 1 has no role: write admin:reader:… or admin:writer:…"}},
		{"certificate without key", "--dev --tls-cert c.pem", []string{"--tls-cert is given without --tls-key"}},
		{"key without certificate", "--dev --tls-key k.pem", []string{"--tls-key is given without --tls-cert"}},
		{"client certificates without TLS", "--dev --client-ca ca.pem", []string{"--client-ca is given without --tls-cert and --tls-key"}},
		{"roles without certificates", "--dev --client-roles r", []string{"--client-roles is given without --client-ca"}},
		{"agents without a cluster", "--dev --agent-service-account a/b", []string{"--agent-service-account is given without --kubeconfig and --in-cluster"}},
		{"agents of no account", "--dev --agent-service-account b", []string{`--agent-service-account "b": want NAMESPACE/NAME`}},
		{"audit log", "--dev --audit-log /nonexistent/log", []string{"open --audit-log: open /nonexistent/log"}},
		{"certificate is not there", "--dev --listen 127.0.0.1:0 --tls-cert /nonexistent --tls-key /nonexistent", []string{"read --tls-cert: stat /nonexistent"}},
		{"ovn key without certificate", "--dev --backend ovn --ovn-nb ssl:127.0.0.1:1 --ovn-ca ca.pem --ovn-key k.pem", []string{"--ovn-key is given without --ovn-cert"}},
		{"OVN without CA", "--dev --backend ovn --ovn-nb ssl:127.0.0.1:1", []string{"--ovn-nb ssl: is given without --ovn-ca"}},
		{"southbound without CA", "--dev --backend ovn --ovn-nb unix:/n --ovn-sb ssl:127.0.0.1:1", []string{"--ovn-sb ssl: is given without --ovn-ca"}},
		{"southbound", "--dev --listen 127.0.0.1:0 --backend ovn --ovn-nb unix:/n --ovn-sb x", []string{`southbound endpoint "x": want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT`}},
		{"etcd authority", "--auth-file " + users + " --etcd-endpoints https://127.0.0.1:1 --etcd-ca /nonexistent", []string{"read --etcd-ca: stat /nonexistent"}},
		{"backend", "--dev --listen 127.0.0.1:0 --backend onos", []string{`backend "onos": want one of memory, ovn, odl`}},
		{"northbound", "--dev --listen 127.0.0.1:0 --backend ovn --ovn-nb /run/x.sock", []string{`northbound endpoint "/run/x.sock": want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT`}},
		{"isolation", "--dev --isolation some", []string{`--isolation "some": want none or namespace`}},
		{"log level", "--dev --log-level loud", []string{`--log-level "loud": want debug, info, warn or error`}},
		{"log format", "--dev --log-format xml", []string{`--log-format "xml": want text or json`}},
		{"body limit", "--dev --body-limit 0", []string{"--body-limit 0: want a number of bytes above 0"}},
		{"reuse delay", "--dev --address-reuse-delay 0s", []string{"--address-reuse-delay 0s: want a time above 0"}},
		{"resync", "--dev --resync-interval -1s", []string{"--resync-interval -1s: want a time above 0"}},
		{"development on every address", "--dev --listen 0.0.0.0:0", []string{"--dev without users is for loopback only", "--listen 0.0.0.0:0", "--auth-file"}},
		{"development on every IPv6 address", "--dev --listen [::]:0", []string{"--dev without users is for loopback only"}},
		{"development on no address", "--dev --listen :0", []string{"--dev without users is for loopback only"}},
		{"development on a host name", "--dev --listen example.com:0", []string{"--dev without users is for loopback only"}},
		{"arguments", "--dev now", []string{`unknown command "now"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, "", append([]string{"serve"}, strings.Fields(c.args)...)...)
			require.Error(t, err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func usersFile(t *testing.T) string {
	t.Helper()
	line, err := run(t, "s3cret\n", "passwd", "admin")
	require.NoError(t, err)
	return file(t, "users", line)
}

var serving = regexp.MustCompile(`msg=serving url=(\S+)`)

// serveFor runs coe-bridge serve on a free port until the test ends, and returns
// its URL.
func serveFor(t *testing.T, args ...string) (*background, string) {
	t.Helper()
	b := start(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	b.await(t, "msg=serving")
	return b, serving.FindStringSubmatch(b.text())[1]
}

func TestServeForDevelopment(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	b, url := serveFor(t, "--dev")
	b.await(t, "*** development mode: anyone who can connect to "+url+" can log in with user admin, password admin ***")
	t.Setenv("COE_BRIDGE_PASSWORD", "admin")
	_, err := run(t, "", "status", "--server", url)
	require.NoError(t, err)
	b.interrupt()
	require.NoError(t, <-b.done, "an interrupt ends it well")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing is kept")
}

// With users of its own, development mode has no other, and says nothing of any.
func TestDevelopmentWithUsers(t *testing.T) {
	b, url := serveFor(t, "--dev", "--auth-file", usersFile(t))
	t.Setenv("COE_BRIDGE_PASSWORD", "admin")
	_, err := run(t, "", "status", "--server", url)
	require.ErrorContains(t, err, "check --user admin")
	t.Setenv("COE_BRIDGE_PASSWORD", "s3cret")
	_, err = run(t, "", "status", "--server", url)
	require.NoError(t, err)
	require.NotContains(t, b.text(), "development mode")
}

// TestServeKeepsItsData: a bridge that starts with the same --data-dir has the data of the
// previous run.
func TestServeKeepsItsData(t *testing.T) {
	args := []string{"--auth-file", usersFile(t), "--data-dir", t.TempDir() + "/made/for/it"}
	t.Setenv("COE_BRIDGE_PASSWORD", "s3cret")
	b, url := serveFor(t, args...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+podsPath, strings.NewReader(web))
	require.NoError(t, err)
	req.SetBasicAuth("admin", "s3cret")
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)

	_, err = run(t, "", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	require.ErrorContains(t, err, "another process uses it: stop that one, or give this one its own --data-dir")
	b.interrupt()
	require.NoError(t, <-b.done)

	_, url = serveFor(t, args...)
	out, err := run(t, "", "get", "pods", "--server", url)
	require.NoError(t, err)
	require.Contains(t, out, "8f2a6d5e-0000-4000-8000-000000000001")
}

func TestServeWithTLS(t *testing.T) {
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t, "bridge")
	clientCert, clientKey := ca.issue(t, "client")
	strangerCert, strangerKey := newAuthority(t).issue(t, "stranger")
	users := usersFile(t)
	_, plain := serveFor(t, "--dev", "--auth-file", users, "--tls-cert", serverCert, "--tls-key", serverKey)
	_, strict := serveFor(t, "--dev", "--auth-file", users, "--tls-cert", serverCert, "--tls-key", serverKey, "--client-ca", ca.file)
	require.True(t, strings.HasPrefix(plain, "https://"))
	for _, c := range []struct{ name, password, url, args, says string }{
		{"authority known", "s3cret", plain, "--ca-file " + ca.file, ""},
		{"authority unknown", "s3cret", plain, "", "name the CA of its certificate with --ca-file"},
		{"http", "s3cret", strings.Replace(plain, "https", "http", 1), "", "it speaks https: --server " + plain + " and --ca-file"},
		{"another address", "s3cret", strings.Replace(plain, "127.0.0.1", "localhost", 1), "--ca-file " + ca.file, "use an address that the certificate names (--server)"},
		{"certificate and password", "s3cret", strict, "--ca-file " + ca.file + " --cert " + clientCert + " --key " + clientKey, ""},
		{"no certificate", "s3cret", strict, "--ca-file " + ca.file, "if it wants a client certificate, show one with --cert and --key"},
		{"another's certificate", "s3cret", strict, "--ca-file " + ca.file + " --cert " + strangerCert + " --key " + strangerKey, "show another certificate with --cert and --key"},
		{"certificate alone", "", strict, "--ca-file " + ca.file + " --cert " + clientCert + " --key " + clientKey, "show another certificate with --cert and --key, or set COE_BRIDGE_PASSWORD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("COE_BRIDGE_PASSWORD", c.password)
			out, err := run(t, "", append([]string{"get", "pods", "--server", c.url}, strings.Fields(c.args)...)...)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Contains(t, out, "no pods")
		})
	}
}

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := template("authority")
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, pemFile(t, "CERTIFICATE", der)}
}

// issue returns the files of a certificate, good for both ends, and its key. Groups
// are organizations.
func (a *authority) issue(t *testing.T, name string, groups ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := template(name)
	leaf.Subject.Organization = groups
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, private.Public(), a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pemFile(t, "CERTIFICATE", der), pemFile(t, "PRIVATE KEY", secret)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	return file(t, "x.pem", string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}
