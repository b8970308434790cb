package ovsdb

import (
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
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

// The ports that FreePort returns are firstPort and the following ones, from a random one on: several programs test at a time.
const (
	firstPort = 20000
	freePorts = 10000
)

var (
	firstTried = rand.Uint32N(freePorts)
	tried      atomic.Uint32
)

// FreePort returns a TCP port of loopback that was free a moment ago, and a different one in each call. The kernel gives it to no client
// meanwhile, because it is below net.ipv4.ip_local_port_range.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(int(firstPort + (firstTried+tried.Add(1))%freePorts))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	require.Fail(t, "no port of loopback is free")
	return ""
}
