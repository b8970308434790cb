// Package child runs processes that die with the process that started them.
package child

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a process that ends at the latest with the process that started it.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; to be read when done is closed
}

// Start starts a command, and waits for it in the background. The kernel sends the parent-death signal
// when the forking thread ends, so that thread is kept as long as the process lives.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output was written.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends the process a signal, like function Signal.
func (p *Process) Signal(s syscall.Signal) error {
	if err := Signal(p.cmd.Process, s); err != nil {
		return fmt.Errorf("send %s to %s: %w", s, p.cmd.Path, err)
	}
	return nil
}

// Kill ends the process with SIGKILL if it runs, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Wait waits for a process that is stopping, and returns its exit error. It kills the process after the
// time limit.
func (p *Process) Wait(within time.Duration) error {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timeout.C:
		p.Kill()
		return fmt.Errorf("%s went on for %s, and was killed", p.cmd.Path, within)
	}
}
