package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

// readyTimeout bounds the time from the start of a process until it is ready.
const readyTimeout = 2 * time.Minute

// toolTimeout bounds a run of a short program.
const toolTimeout = 2 * time.Minute

// pollInterval is the interval of checks.
const pollInterval = 20 * time.Millisecond

// Process is a process of a lab. Kill, Stop and Cont cause faults. Its methods must not be called concurrently.
type Process struct {
	// Name is unique in the lab, and the name of the log.
	Name string

	lab   *Lab
	netns string // empty for the namespace of the lab's user
	argv  []string
	env   []string
	ready func(context.Context) error // nil if it is ready when started

	mu  sync.Mutex
	run *run // the last; nil before the first
}

// run is one run of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was waited for
}

func (l *Lab) newProcess(name, netns string, argv ...string) *Process {
	p := &Process{Name: name, lab: l, netns: netns, argv: argv}
	l.mu.Lock()
	l.processes = append(l.processes, p)
	l.mu.Unlock()
	return p
}

// Command is an additional program in the lab, which is removed with the lab.
type Command struct {
	Name string // of the process and its log
	Pod  string // the pod or host in whose namespace it runs; empty for the caller's namespace
	Argv []string
	Env  []string // added to the caller's
	// Ready is called until it returns nil. A program without Ready is ready when it has started.
	Ready func(context.Context) error
}

// Launch starts a command, and waits until it is ready.
func (l *Lab) Launch(ctx context.Context, c Command) (*Process, error) {
	netns := ""
	if c.Pod != "" {
		netns = l.Namespace(c.Pod)
	}
	p := l.newProcess(c.Name, netns, c.Argv...)
	p.env = c.Env
	if c.Ready != nil {
		p.ready = func(ctx context.Context) error { return Poll(ctx, c.Ready) }
	}
	return p, p.Start(ctx)
}

// Start starts a process that does not run, and waits until it is ready. An error includes the end of its log.
func (p *Process) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r, err := p.spawn()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		return fmt.Errorf("start %s: %w; the last of %s:\n%s", p.Name, err, p.logFile(), lastLines(p.logFile()))
	}
	return nil
}

func (p *Process) spawn() (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil, errors.New("the process is already running")
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if err := p.lab.starter.start(cmd); err != nil {
		return nil, err
	}
	recorded := p.lab.journal.addProcess(cmd.Process.Pid)
	if recorded != nil {
		_ = cmd.Process.Kill() // without an entry in the journal, no cleanup could find it
	}
	p.run = &run{cmd: cmd, done: make(chan struct{})}
	go p.run.wait()
	p.lab.log.Debug("process started", "name", p.Name, "pid", cmd.Process.Pid)
	return p.run, recorded
}

// command returns the program as a direct child: "ip netns exec" is replaced by the program with the same PID.
func (p *Process) command() *exec.Cmd {
	argv := p.argv
	if p.netns != "" {
		argv = slices.Concat([]string{"ip", "netns", "exec", p.netns}, argv)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !p.lab.survive {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	return cmd
}

// wait reaps the process; cmd.ProcessState has the exit status.
func (r *run) wait() {
	_ = r.cmd.Wait()
	close(r.done)
}

func (p *Process) awaitReady(ctx context.Context, r *run) error {
	if p.ready == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.done:
			cancel(fmt.Errorf("it ended with %s", r.cmd.ProcessState))
		case <-ctx.Done():
		}
	}()
	err := p.ready(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// running reports whether the process was started and has not exited. The caller holds the lock.
func (p *Process) running() bool {
	if p.run == nil {
		return false
	}
	select {
	case <-p.run.done:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits for it. It does nothing if the process does not run.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// Terminate ends the process with SIGTERM and waits for it.
func (p *Process) Terminate() error { return p.end(syscall.SIGTERM) }

func (p *Process) end(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	if err := p.run.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", p.Name, err)
	}
	select {
	case <-p.run.done:
		return nil
	case <-time.After(readyTimeout):
		return fmt.Errorf("end %s: pid %d goes on after %s", p.Name, p.run.cmd.Process.Pid, s)
	}
}

// Stop suspends the process (SIGSTOP): it keeps its sockets but answers nothing.
func (p *Process) Stop() error { return p.signal(syscall.SIGSTOP) }

// Cont continues a stopped process.
func (p *Process) Cont() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("send %s to %s: it does not run", s, p.Name)
	}
	if err := child.Signal(p.run.cmd.Process, s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.Name, err)
	}
	return nil
}

// Restart kills the process and starts it again.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Kill(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// PID returns the ID of a running process.
func (p *Process) PID() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0, fmt.Errorf("find process %s: it does not run", p.Name)
	}
	return p.run.cmd.Process.Pid, nil
}

func (p *Process) logFile() string {
	return filepath.Join(p.lab.Logs(), strings.ReplaceAll(p.Name, "/", "-")+".log")
}

// awaitSocket waits until a process listens on a unix socket.
func awaitSocket(ctx context.Context, path string) error {
	return Poll(ctx, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// Poll calls f until it returns nil. If ctx ends first, it returns the last error of f.
func Poll(ctx context.Context, f func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// output runs a program, and returns its output. An error includes its error output. The program ends with this process; the
// forking thread is kept as long, because its end sends the signal.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("run %s: %w: %s", cmd, err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

// lastLines returns the end of a log for an error.
func lastLines(file string) string {
	const lines = 10
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
