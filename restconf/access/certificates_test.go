package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

// tlsBed is a bed with TLS and its authority.
type tlsBed struct {
	*bed
	authority *pki.Authority
	url       string
}

// newTLSBed serves over TLS; clients' certificates have roles, unless roles is
// empty.
func newTLSBed(t testing.TB, roles string) *tlsBed {
	t.Helper()
	a := pki.New(t, "authority")
	shown := a.Issue(t, "bridge")
	cfg := Config{
		UsersFile: file(t, line(t, "ann", "writer", "one")),
		CertFile:  file(t, string(shown.Cert)), KeyFile: file(t, string(shown.Key)), ClientCAFile: file(t, string(a.PEM())),
	}
	if roles != "" {
		cfg.ClientRolesFile = file(t, roles)
	}
	b := &tlsBed{bed: newBed(t, cfg), authority: a}
	b.url = b.serve()
	return b
}

func (b *tlsBed) caller(shown *pki.Pair) *caller { return newCaller(b.t, b.url, b.authority, shown) }

func TestCertificatesTellRoles(t *testing.T) {
	b := newTLSBed(t, `# who may do what
writer:CN=robot
reader:CN=both
writer:O=writers
reader:DNS=Agent.Example.org
writer:EMAIL=eve@example.org
reader:URI=spiffe://cluster/ns/shop/sa/web
reader:IP=::ffff:192.0.2.7
reader:OU=all of them: readers
node:O=system:nodes
`)
	uri, err := url.Parse("spiffe://cluster/ns/shop/sa/web")
	require.NoError(t, err)
	for _, c := range []struct {
		name, want string
		change     func(*x509.Certificate)
	}{
		{"robot", "robot writer certificate", nil},
		{"both", "both reader certificate", func(c *x509.Certificate) { c.Subject.Organization = []string{"writers"} }},
		{"one of many", "one of many writer certificate", func(c *x509.Certificate) { c.Subject.Organization = []string{"x", "writers"} }},
		{"unit", "unit reader certificate", func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{"all of them: readers"} }},
		{"dns", "agent.example.org reader certificate", func(c *x509.Certificate) { c.DNSNames = []string{"AGENT.example.org"} }},
		{"mail", "eve@example.org writer certificate", func(c *x509.Certificate) { c.EmailAddresses = []string{"eve@example.org"} }},
		{"uri", "spiffe://cluster/ns/shop/sa/web reader certificate", func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }},
		{"address", "192.0.2.7 reader certificate", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("192.0.2.7")} }},
		{"system:node:worker-1", "system:node:worker-1 node certificate", inGroup("system:nodes")},
		{"worker-1", "worker-1 none certificate", inGroup("system:nodes")},
		{"system:node:", "system:node: none certificate", inGroup("system:nodes")},
		{"system:node:worker-2", "system:node:worker-2 none certificate", nil},
		{"nobody", "nobody none certificate", nil},
		{"robot ", "robot  none certificate", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			shown := b.authority.Issue(t, c.name, func(leaf *x509.Certificate) {
				if c.change != nil {
					c.change(leaf)
				}
			})
			caller := b.caller(&shown)
			for range 2 { // the second time from memory
				said, err := caller.ask(t, "")
				require.NoError(t, err)
				require.Equal(t, c.want, said)
			}
			said, err := caller.ask(t, "ann:one")
			require.NoError(t, err)
			require.Equal(t, "ann writer password", said, "who sends a password is judged by that")
			said, err = caller.ask(t, "ann:two")
			require.NoError(t, err)
			require.Contains(t, said, "no such user")
		})
	}
	said, err := b.caller(nil).ask(t, "")
	require.NoError(t, err)
	require.Equal(t, ErrNoCredentials.Error(), said)
	said, err = b.caller(nil).ask(t, "ann:one")
	require.NoError(t, err)
	require.Equal(t, "ann writer password", said)
}

func inGroup(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.Organization = []string{name} }
}

func TestCertificatesThatAreRefused(t *testing.T) {
	b := newTLSBed(t, "writer:CN=robot\n")
	stranger := pki.New(t, "authority").Issue(t, "robot")
	for _, c := range []struct {
		name, says string
		shown      pki.Pair
	}{
		{"ended", "certificate has expired", b.authority.Issue(t, "robot", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })},
		{"to come", "not yet valid", b.authority.Issue(t, "robot", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })},
		{"a server's", "incompatible key usage", b.authority.Issue(t, "robot", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })},
		{"another authority's", "certificate signed by unknown authority", stranger},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, err := b.caller(&c.shown).ask(t, "")
			require.NoError(t, err)
			require.Contains(t, said, "the client certificate is not good here: ")
			require.Contains(t, said, c.says)
			said, err = b.caller(&c.shown).ask(t, "ann:one")
			require.NoError(t, err)
			require.Equal(t, "ann writer password", said, "a password is enough")
		})
	}
	require.Equal(t, 4.0, b.metric("coe_bridge_logins_failed_total", "certificate"))
}

// A certificate that ends, an authority that goes and a role that is taken end on a
// connection that is open.
func TestCertificatesEndOnOpenConnections(t *testing.T) {
	b := newTLSBed(t, "writer:CN=robot\nreader:CN=short\n")
	robot := b.authority.Issue(t, "robot")
	longLived := b.caller(&robot)
	says := func(c *caller, text string) func() bool {
		return func() bool {
			said, err := c.ask(t, "")
			return err == nil && strings.Contains(said, text)
		}
	}
	require.True(t, says(longLived, "robot writer")())
	var shortLived *caller
	b.eventually(func() bool { // a certificate can end before it is used
		end := time.Now().Add(6 * time.Second).Truncate(time.Second)
		short := b.authority.Issue(t, "short", func(c *x509.Certificate) { c.NotAfter = end })
		shortLived = b.caller(&short)
		return says(shortLived, "short reader")()
	}, "it is used")
	b.eventually(says(shortLived, "certificate has expired"), "it ends")

	write(t, b.cfg.ClientRolesFile, "reader:CN=robot\n")
	b.eventually(says(longLived, "robot reader"), "it has another role")
	write(t, b.cfg.ClientRolesFile, "writer:CN=another\n")
	b.eventually(says(longLived, "robot none"), "it has no role")
	write(t, b.cfg.ClientRolesFile, "writer CN=robot\n")
	b.eventually(func() bool { return b.metric("coe_bridge_file_failures_total", "client-roles") == 1 }, "the file is broken")

	write(t, b.cfg.ClientCAFile, string(pki.New(t, "new").PEM()))
	b.eventually(says(longLived, "unknown authority"), "its authority is gone")
	write(t, b.cfg.ClientCAFile, "no certificate")
	b.eventually(func() bool { return b.metric("coe_bridge_file_failures_total", "client-ca") == 1 }, "the file is broken")
	require.True(t, says(longLived, "unknown authority")())
}

// Without roles, a certificate is wanted of everybody, and a password.
func TestCertificateAndPassword(t *testing.T) {
	b := newTLSBed(t, "")
	robot, stranger := b.authority.Issue(t, "robot"), pki.New(t, "authority").Issue(t, "robot")
	for _, shown := range []*pki.Pair{nil, &stranger} {
		_, err := b.caller(shown).ask(t, "ann:one")
		require.Error(t, err)
	}
	caller := b.caller(&robot)
	said, err := caller.ask(t, "ann:one")
	require.NoError(t, err)
	require.Equal(t, "ann writer password", said)
	said, err = caller.ask(t, "")
	require.NoError(t, err)
	require.Equal(t, ErrNoCredentials.Error(), said)

	// When the authority goes, so does what is open; and no old session opens another
	// connection.
	write(t, b.cfg.ClientCAFile, string(pki.New(t, "new").PEM()))
	b.eventually(func() bool {
		said, err := caller.ask(t, "ann:one")
		return err != nil || strings.Contains(said, "unknown authority")
	}, "the authority is another")
	caller.http.CloseIdleConnections()
	_, err = caller.ask(t, "ann:one")
	require.Error(t, err)
}

// The server's certificate and key change one after the other, and connections made
// from then on have them. A pair that does not fit changes nothing.
func TestServerCertificateIsFollowed(t *testing.T) {
	b := newTLSBed(t, "writer:CN=robot\n")
	shown := func() string {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: b.authority.Pool()}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "https://"))
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "bridge", shown())
	open := b.caller(nil)
	_, err := open.ask(t, "ann:one")
	require.NoError(t, err)

	end := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	second := b.authority.Issue(t, "second", func(c *x509.Certificate) { c.NotAfter = end })
	write(t, b.cfg.CertFile, string(second.Cert))
	b.eventually(func() bool { return b.metric("coe_bridge_file_failures_total", "tls-cert") == 1 }, "the key is another's")
	require.Equal(t, "bridge", shown())
	write(t, b.cfg.KeyFile, string(second.Key))
	b.eventually(func() bool { return shown() == "second" }, "the pair is in force")
	require.InDelta(t, end.Unix(), b.metric("coe_bridge_certificate_end_timestamp_seconds", "tls-cert"), 1)
	_, err = open.ask(t, "ann:one")
	require.NoError(t, err, "a connection that is open goes on")
	require.Contains(t, b.log.String(), "private key does not match public key")
	require.NotContains(t, b.log.String(), "PRIVATE KEY")
}

// curl as a client: with a certificate, with one that has ended, and with a password.
func TestCurl(t *testing.T) {
	b := newTLSBed(t, "writer:CN=robot\n")
	authority := file(t, string(b.authority.PEM()))
	curl := func(args ...string) string {
		args = append([]string{"--silent", "--show-error", "--max-time", "20", "--cacert", authority, b.url}, args...)
		out, err := exec.CommandContext(t.Context(), "curl", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	with := func(p pki.Pair) []string {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "cert"), string(p.Cert))
		write(t, filepath.Join(dir, "key"), string(p.Key))
		return []string{"--cert", filepath.Join(dir, "cert"), "--key", filepath.Join(dir, "key")}
	}
	robot := b.authority.Issue(t, "robot")
	ended := b.authority.Issue(t, "robot", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	require.Equal(t, "robot writer certificate", curl(with(robot)...))
	require.Contains(t, curl(with(ended)...), "certificate has expired")
	require.Equal(t, "ann writer password", curl("--user", "ann:one"))
	require.Equal(t, "ann writer password", curl(append(with(robot), "--user", "ann:one")...))
	require.Equal(t, "ann writer password", curl("--http1.1", "--tls-max", "1.2", "--user", "ann:one"))
}

func TestRolesFilesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ content, says string }{
		"empty":          {"# nobody\n", "gives nobody a role"},
		"no role":        {"CN=robot\n", `line 1: role "CN=robot": want reader, writer or node`},
		"unknown role":   {"root:CN=robot\n", `role "root": want reader, writer or node`},
		"no attribute":   {"\nwriter:robot\n", `line 2: "robot": want CN, O, OU, DNS, EMAIL, URI or IP`},
		"other case":     {"writer:cn=robot\n", "want CN, O"},
		"no value":       {"writer:CN=\n", "and a value"},
		"no address":     {"writer:IP=here\n", `"IP=here"`},
		"twice":          {"writer:CN=a\nreader:CN=a\n", "line 2 gives CN=a a role again: line 1 does"},
		"twice, in case": {"writer:DNS=a\nreader:DNS=A\n", "line 2 gives DNS=a a role again"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseCertificateRoles([]byte(c.content))
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A certificate is good for as long as its chain is.
func TestGoodUntil(t *testing.T) {
	at := func(minutes int) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{}, NotAfter: time.Unix(int64(60*minutes), 0)}
	}
	require.Equal(t, time.Unix(180, 0), goodUntil([][]*x509.Certificate{{at(9), at(2)}, {at(9), at(3), at(8)}, {at(1), at(9)}}))
}
