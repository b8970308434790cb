package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

const (
	// root is the project's folder.
	root = "../../.."
	// patience is the time in which an expected state must be reached on a busy machine.
	patience = 2 * time.Minute
	poll     = 50 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// process is a running program. It ends with its test at the latest.
type process struct {
	*child.Process
	name string

	mu   sync.Mutex
	said bytes.Buffer
}

// start starts a program. If the test failed, its output is printed.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: strings.Join(cmd.Args, " ")}
	cmd.Stdout, cmd.Stderr = p, p
	var err error
	p.Process, err = child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.end(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.text())
		}
	})
	return p
}

// end ends the process with a signal, and waits until it has ended. The process may have ended before.
func (p *process) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	_ = p.Signal(signal)
	select {
	case <-p.Done():
	case <-time.After(patience):
		p.Kill()
		t.Errorf("%s goes on after %s", p.name, signal)
	}
}

// Write records the output of the process.
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
