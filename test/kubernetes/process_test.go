package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/bridgetest"
)

const (
	buildTimeout = 3 * time.Minute
	readyTimeout = 30 * time.Second
)

// process is the program as its users run it, to be killed and started again.
type process struct {
	running // how it is asked; valid after start
	t       *testing.T
	args    []string
	cmd     *exec.Cmd // nil while it does not run
	log     *processLog
}

// buildBridge builds the program and returns its path.
func buildBridge(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	program := filepath.Join(t.TempDir(), "coe-bridge")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/coe-bridge/coe-bridge/cmd/coe-bridge")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does, whose cache is warm
	out, err := build.CombinedOutput()
	require.NoError(t, err, "build coe-bridge: %s", out)
	return program
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
	case url := <-p.log.url:
		p.running = running{bridgetest.At(p.t, url)}
	case <-time.After(readyTimeout):
		require.Fail(p.t, "coe-bridge does not serve", "%s", p.log.last())
	}
	await(p.t, readyTimeout, "ready", func() error {
		if code, answer := p.Do(http.MethodGet, "/readyz", ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})
}

// kill ends the program with SIGKILL and waits for it.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says that it was killed
	p.cmd = nil
}

// end kills the program at the end of its test.
func (p *process) end() {
	p.kill()
	if p.t.Failed() {
		p.t.Logf("the last of coe-bridge's log: %s", p.log.last())
	}
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
	l.text = l.text[max(0, len(l.text)-keptLog):]
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
