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

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

const (
	// buildTimeout bounds the build of the bridge. On a starved machine three minutes were too short.
	buildTimeout = 15 * time.Minute
	readyTimeout = patience.Patience
)

// programDir is the directory of the program; empty before Main.
var programDir string

var program = sync.OnceValues(func() (string, error) {
	if programDir == "" {
		return "", errors.New("build coe-bridge: no directory for it: call bridgetest.Main in TestMain of the package")
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	return serve.Build(ctx, programDir)
})

// Main runs the tests of a package that builds a program, and removes the program. It returns the exit
// code for TestMain.
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

// Program returns the path of coe-bridge, built once for all tests of a package whose TestMain calls
// Main.
func Program(t testing.TB) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	return path
}

// Process is coe-bridge as a process, which can be stopped, killed and restarted.
type Process struct {
	t       testing.TB
	program string
	args    []string
	running *serve.Process // the last one
	bridge  *Bridge
}

// Serve starts coe-bridge serve with additional arguments, on loopback and with User, and waits until it
// is ready. It stops at the end of the test. If the test failed, the end of its log is printed.
func Serve(t testing.TB, args ...string) *Process {
	t.Helper()
	return ServeProgram(t, Program(t), args...)
}

// ServeProgram is Serve with another version of coe-bridge.
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

// Change changes the arguments of the next Start.
func (p *Process) Change(change func(args []string) []string) { p.args = change(p.args) }

// Start starts a bridge that was killed or has ended.
func (p *Process) Start() {
	p.t.Helper()
	running, err := serve.StartQuietly(context.WithoutCancel(p.t.Context()), p.program, p.args...)
	require.NoError(p.t, err)
	p.running = running
	p.bridge = &Bridge{t: p.t, url: running.URL, client: serve.NewTLSClient(running.URL, requestTimeout, p.TLS())}
	p.bridge.awaitReady()
}

// TLS returns a configuration that trusts only the bridge's certificate.
func (p *Process) TLS() *tls.Config {
	trusted := x509.NewCertPool()
	if i := slices.Index(p.args, "--tls-cert"); i >= 0 {
		certificate, err := os.ReadFile(p.args[i+1])
		require.NoError(p.t, err)
		require.True(p.t, trusted.AppendCertsFromPEM(certificate))
	}
	return &tls.Config{RootCAs: trusted}
}

// Bridge returns a client of the bridge, valid until the bridge restarts.
func (p *Process) Bridge() *Bridge { return p.bridge }

// Client returns the client of Bridge.
func (p *Process) Client() *serve.Client { return p.bridge.Client() }

// Log returns the log of the bridge since its last start.
func (p *Process) Log() *serve.Log { return p.running.Log() }

// Signal sends the bridge a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.running.Signal(s))
}

// Kill ends the bridge with SIGKILL if it runs, and waits for its end.
func (p *Process) Kill() {
	if p.running == nil {
		return
	}
	p.running.Kill()
	p.bridge.client.Close()
}

// Wait waits for a bridge that is stopping, and returns its exit error.
func (p *Process) Wait() error { return p.running.Wait() }

// Stop stops the bridge like an operator, and waits for its end.
func (p *Process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.running.Stop())
}
