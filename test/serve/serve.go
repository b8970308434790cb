// Package serve runs `coe-bridge serve` as a process of its own, so that its memory
// and its processor time are nobody else's, for programs that measure it.
package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
	command      = "github.com/coe-bridge/coe-bridge/cmd/coe-bridge"
)

// Build builds the bridge of this source tree in a folder, and returns its path.
func Build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "coe-bridge")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, command).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bridge: %w: %s", err, out)
	}
	return program, nil
}

// Line is what the bridge logged once.
type Line struct {
	Time       time.Time
	Level, Msg string
	URL        string
	Resource   string
}

// Process is a bridge that serves. It dies with the process that started it.
type Process struct {
	URL string

	process *exec.Cmd
	log     io.ReadCloser

	mu    sync.Mutex
	lines []Line
}

// Start starts the bridge with further arguments of serve, and learns from its log
// where it serves. What a person must see of the log goes to standard error.
func Start(ctx context.Context, program string, args ...string) (*Process, error) {
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	p := &Process{process: exec.CommandContext(ctx, program, args...)}
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.log, err = p.process.StderrPipe(); err != nil {
		return nil, fmt.Errorf("read the bridge's log: %w", err)
	}
	if err := p.process.Start(); err != nil {
		return nil, fmt.Errorf("start the bridge: %w", err)
	}
	served := make(chan string, 1)
	go p.follow(served)
	if p.URL, err = await(served); err != nil {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
		return nil, fmt.Errorf("start the bridge: %w", err)
	}
	return p, nil
}

func await(served <-chan string) (url string, err error) {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case url, ok := <-served:
		if !ok {
			return "", errors.New("it ended; its log says why")
		}
		return url, nil
	case <-timeout.C:
		return "", fmt.Errorf("it does not serve after %s", startTimeout)
	}
}

// follow reads the log to its end: it tells where the bridge serves, keeps what is
// for information, and passes on the rest.
func (p *Process) follow(served chan<- string) {
	defer close(served)
	for lines := bufio.NewScanner(p.log); lines.Scan(); {
		var line Line
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level != "INFO" {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		p.mu.Lock()
		p.lines = append(p.lines, line)
		p.mu.Unlock()
		if line.Msg == "serving" {
			served <- line.URL
		}
	}
}

// Listed is when the bridge had listed a resource of Kubernetes for the first time.
func (p *Process) Listed(resource string) (time.Time, error) {
	at, found := p.said(func(l Line) bool { return l.Msg == "listed" && l.Resource == resource })
	if !found {
		return at, fmt.Errorf("the bridge's log does not say when it had listed %s", resource)
	}
	return at, nil
}

// Leads tells whether the bridge has been elected. Before that, it asks the backend
// for whoever asks for its status.
func (p *Process) Leads() bool {
	_, found := p.said(func(l Line) bool { return l.Msg == "this bridge leads" })
	return found
}

// said is when the first line was logged that is the one meant.
func (p *Process) said(meant func(Line) bool) (at time.Time, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.lines, meant)
	if i < 0 {
		return time.Time{}, false
	}
	return p.lines[i].Time, true
}

// Stop ends the bridge as an operator does, and waits for it.
func (p *Process) Stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = p.process.Process.Kill() })
	defer kill.Stop()
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	return nil
}
