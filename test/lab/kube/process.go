package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

const (
	// readyTimeout bounds the time from the start of a process until it is ready.
	readyTimeout = 3 * time.Minute
	// endTimeout bounds the time until a killed process is gone.
	endTimeout = 30 * time.Second
	// attemptTimeout bounds one check whether a process is ready.
	attemptTimeout = 10 * time.Second
	// pollInterval is the interval of checks.
	pollInterval = 20 * time.Millisecond
)

// ready returns nil if a process is ready.
type ready func(context.Context) error

// Process is a process of a control plane. It ends with the process that started it.
type Process struct {
	Name string // of the program, and of its log

	argv  []string
	dir   string // in which it runs
	log   string // its file
	ready ready  // nil if it is ready when started

	mu   sync.Mutex
	life *life // the last; nil before the first
}

// life is one run of a process.
type life struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was waited for
}

// Start starts a process that does not run, and waits until it is ready. An error includes the end of its log.
func (p *Process) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	l, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if err := p.await(ctx, l); err != nil {
		return fmt.Errorf("start %s: %w; the last of its log:\n%s", p.Name, err, lastLines(p.log))
	}
	return nil
}

func (p *Process) spawn() (*life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.running() {
		return nil, errors.New("the process is already running")
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	l := &life{cmd: cmd, done: make(chan struct{})}
	if err := l.start(); err != nil {
		return nil, err
	}
	p.life = l
	return l, nil
}

// start starts the process, and waits for it in the background. The kernel sends the parent-death signal when the forking thread
// ends, so that thread is kept as long as the process lives.
func (l *life) start() error {
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := l.cmd.Start()
		started <- err
		if err == nil {
			_ = l.cmd.Wait() // how it ended is in cmd.ProcessState
			close(l.done)
		}
	}()
	return <-started
}

// await waits until the process is ready or has ended, or ctx ends.
func (p *Process) await(ctx context.Context, l *life) error {
	if p.ready == nil {
		return nil
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := attempt(ctx, p.ready)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-l.done:
			return fmt.Errorf("it ended with %s", l.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

func attempt(ctx context.Context, f ready) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return f(ctx)
}

func (l *life) running() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits for it. It does nothing if the process does not run.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.life.running() {
		return nil
	}
	if err := p.life.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	select {
	case <-p.life.done:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("kill %s: process %d goes on after SIGKILL", p.Name, p.life.cmd.Process.Pid)
	}
}

// Signal sends the process a signal. After SIGSTOP it keeps its sockets but answers nothing, until SIGCONT.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.life.running() {
		return fmt.Errorf("send %s to %s: it does not run", s, p.Name)
	}
	if err := child.Signal(p.life.cmd.Process, s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// lastLines returns the end of a log for an error.
func lastLines(file string) string {
	const lines = 15
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
