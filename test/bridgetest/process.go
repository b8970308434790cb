package bridgetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/serve"
)

const (
	buildTimeout = 3 * time.Minute
	readyTimeout = 30 * time.Second
)

// programDir is where the program is built; empty before Main.
var programDir string

var program = sync.OnceValues(func() (string, error) {
	if programDir == "" {
		return "", errors.New("build coe-bridge: there is no folder for it: have TestMain of the package call bridgetest.Main")
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	return serve.Build(ctx, programDir)
})

// Main runs the tests of a package that has a program built, and removes that then. It
// returns what TestMain exits with.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bridgetest")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for coe-bridge:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programDir = dir
	return m.Run()
}

// Program is the path of coe-bridge, built once for all tests of a package, whose
// TestMain calls Main.
func Program(t testing.TB) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	return path
}

// Process is coe-bridge as its users run it, to be halted, killed and started again.
type Process struct {
	t       testing.TB
	program string
	args    []string
	running *serve.Process // the last one
	bridge  *Bridge
}

// Serve starts coe-bridge serve with further arguments, on loopback and with User, and
// waits until it is ready. It ends with the test, and shows the last of its log when
// the test has failed.
func Serve(t testing.TB, args ...string) *Process {
	t.Helper()
	return ServeProgram(t, Program(t), args...)
}

// ServeProgram is Serve with a coe-bridge of another version, given by its path.
func ServeProgram(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, program: program, args: append([]string{"--dev"}, args...)}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() && p.running != nil {
			t.Logf("the last of the log of coe-bridge at %s:\n%s", p.bridge.URL(), p.Log().Last())
		}
	})
	p.Start()
	return p
}

// Start starts the bridge again that was killed, or has ended.
func (p *Process) Start() {
	p.t.Helper()
	running, err := serve.StartQuietly(context.WithoutCancel(p.t.Context()), p.program, p.args...)
	require.NoError(p.t, err)
	p.running = running
	p.bridge = &Bridge{t: p.t, url: running.URL, client: serve.NewTLSClient(running.URL, requestTimeout, p.TLS())}
	p.bridge.awaitReady()
}

// TLS trusts the certificate of the bridge that it was started with, and no other.
func (p *Process) TLS() *tls.Config {
	trusted := x509.NewCertPool()
	if i := slices.Index(p.args, "--tls-cert"); i >= 0 {
		certificate, err := os.ReadFile(p.args[i+1])
		require.NoError(p.t, err)
		require.True(p.t, trusted.AppendCertsFromPEM(certificate))
	}
	return &tls.Config{RootCAs: trusted}
}

// Bridge is how the bridge is asked, until it is started again.
func (p *Process) Bridge() *Bridge { return p.bridge }

// Client is Bridge's.
func (p *Process) Client() *serve.Client { return p.bridge.Client() }

// Log is what the bridge has logged since it was started.
func (p *Process) Log() *serve.Log { return p.running.Log() }

// Signal sends the bridge a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.running.Signal(s))
}

// Kill ends the bridge with SIGKILL, if it runs, and waits for it.
func (p *Process) Kill() {
	if p.running == nil {
		return
	}
	p.running.Kill()
	p.bridge.client.Close()
}

// Wait waits for a bridge that was told to end, and returns how it ended.
func (p *Process) Wait() error { return p.running.Wait() }

// Stop ends the bridge as an operator does, and waits for it.
func (p *Process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.running.Stop())
}
