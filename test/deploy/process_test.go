package deploy

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// root is the project's folder.
	root = "../.."
	// patience is how long what must happen may take on a busy machine.
	patience = time.Minute
	poll     = 50 * time.Millisecond
)

// build builds coe-bridge as make build does and returns its path.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coe-bridge")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./cmd/coe-bridge")
	build.Dir = root
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// process is a program that runs until it is ended, at the latest with its test,
// and dies with the process of the test.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	said bytes.Buffer
}

// start starts a program. What it said is shown when the test has failed.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when this thread ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.done)
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		p.end(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(cmd.Args, " "), p.text())
		}
	})
	return p
}

// end sends a signal that ends the process, which may have ended already, and waits
// until it has.
func (p *process) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
		t.Errorf("%s goes on after %s", p.cmd.Path, signal)
	}
}

// Write takes what the process says.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// says waits until a line of what the process says has all the words.
func (p *process) says(t *testing.T, words ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for line := range strings.Lines(p.text()) {
			if hasAll(line, words) {
				return true
			}
		}
		return false
	}, patience, poll, "a line with %q", words)
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
