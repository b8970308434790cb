package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	buildTimeout = 3 * time.Minute
	readyTimeout = 30 * time.Second
)

// process is the program as its users run it, over a data folder that outlives
// it, to be killed and started again.
type process struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd // nil while it does not run
	log  *processLog
	rest rest
}

// buildBridge builds the program and returns its path.
func buildBridge(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	program := filepath.Join(t.TempDir(), "coe-bridge")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/coe-bridge/coe-bridge/cmd/coe-bridge").CombinedOutput()
	require.NoError(t, err, "build coe-bridge: %s", out)
	return program
}

// startProcess starts coe-bridge serve with the OVN backend. It ends with the test.
func startProcess(t *testing.T, program, nb string, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: append([]string{
		program, "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
		"--backend", "ovn", "--ovn-nb", nb, "--log-format", "json",
	}, args...)}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the last of coe-bridge's log: %s", p.log.last())
		}
	})
	p.start()
	return p
}

// start starts the program and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	p.log = &processLog{url: make(chan string, 1)}
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, p.cmd.Start())
	select {
	case p.rest.base = <-p.log.url:
	case <-time.After(readyTimeout):
		require.Fail(p.t, "coe-bridge does not serve", "%s", p.log.last())
	}
	await(p.t, readyTimeout, "ready", func() error { return p.ready() })
}

func (p *process) ready() error {
	status, _, err := p.rest.do(p.t.Context(), http.MethodGet, "operational/coe-status:status", nil)
	if err == nil && status != http.StatusOK {
		return fmt.Errorf("status tree: %d", status)
	}
	return err
}

// kill ends the program with SIGKILL and waits for it.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	p.cmd = nil
	http.DefaultClient.CloseIdleConnections()
}

// processLog keeps the last of a log, and tells the URL that it names.
type processLog struct {
	url chan string

	mu   sync.Mutex
	line []byte // the last one, not complete yet
	text []byte
}

// keptLog is how much of a log is kept.
const keptLog = 64 << 10

// Write implements io.Writer.
func (l *processLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text...)
	if len(l.text) > keptLog {
		l.text = l.text[len(l.text)-keptLog:]
	}
	l.line = append(l.line, text...)
	for {
		line, rest, complete := bytes.Cut(l.line, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		l.line = rest
		var entry struct{ Msg, URL string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving" {
			l.url <- entry.URL
		}
	}
}

func (l *processLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
