package ovsdb

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

// PKI is a PKI that was created with ovs-pki. Its certificates name no host.
type PKI struct{ dir string }

// NewPKI runs ovs-pki init.
func NewPKI(t testing.TB) *PKI {
	t.Helper()
	p := &PKI{t.TempDir()}
	p.run(t, "init")
	return p
}

func (p *PKI) run(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ovs-pki",
		append([]string{"--dir=" + filepath.Join(p.dir, "pki"), "--log=" + filepath.Join(p.dir, "log"), "--batch", "--unique"}, args...)...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "ovs-pki %v: %s: install the Debian packages openvswitch-common and openssl", args, out)
}

// CA returns the path of the CA's certificate.
func (p *PKI) CA() string { return filepath.Join(p.dir, "pki", "switchca", "cacert.pem") }

// Issue creates a certificate and its key.
func (p *PKI) Issue(t testing.TB, name string) pki.Paths {
	t.Helper()
	p.run(t, "req+sign", name, "switch")
	return pki.Paths{Cert: filepath.Join(p.dir, name+"-cert.pem"), Key: filepath.Join(p.dir, name+"-privkey.pem")}
}

// FreePort returns a TCP port of loopback that was free a moment ago.
func FreePort(t testing.TB) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return port
}
