// Package serve runs `coe-bridge serve` as a separate process, and has a client of it. The process can be
// killed, and its memory and its processor time can be measured. The package does not depend on tests;
// test/lab/bridgetest is for tests.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 2 * time.Minute
	command      = "github.com/coe-bridge/coe-bridge/cmd/coe-bridge"
)

// Build builds the bridge of this source tree in a folder, and returns its path. It uses the same flags as make
// build, and so the same build cache.
func Build(ctx context.Context, dir string) (program string, err error) {
	return BuildIn(ctx, "", dir)
}

// BuildIn builds the bridge of the source tree that contains the folder tree. An empty tree means this source
// tree.
func BuildIn(ctx context.Context, tree, dir string) (program string, err error) {
	program = filepath.Join(dir, "coe-bridge")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, command)
	build.Dir = tree
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the bridge: %w: %s", err, out)
	}
	return program, nil
}

// Process is a running bridge. It ends with the process that started it.
type Process struct {
	URL string

	child *child.Process
	log   *Log
}

// Start starts the bridge with additional arguments of serve, and reads its URL from the log. Errors
// and warnings in the log go to standard error.
func Start(ctx context.Context, program string, args ...string) (*Process, error) {
	return start(ctx, os.Stderr, program, args)
}

// StartQuietly is Start without output to standard error.
func StartQuietly(ctx context.Context, program string, args ...string) (*Process, error) {
	return start(ctx, nil, program, args)
}

func start(ctx context.Context, seen io.Writer, program string, args []string) (*Process, error) {
	p := &Process{log: newLog(seen)}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = p.log
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		return nil, err
	}
	if p.URL, err = p.served(); err != nil {
		p.Kill()
		return nil, fmt.Errorf("start the bridge: %w; the last of its log:\n%s", err, p.log.Last())
	}
	return p, nil
}

func (p *Process) served() (url string, err error) {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case url := <-p.log.served:
		return url, nil
	case <-p.child.Done():
		return "", errors.New("it ended")
	case <-timeout.C:
		return "", fmt.Errorf("it does not serve after %s", startTimeout)
	}
}

// Log returns the log of the bridge.
func (p *Process) Log() *Log { return p.log }

// Listed returns the time at which the bridge had listed a resource of Kubernetes for the first time.
func (p *Process) Listed(resource string) (time.Time, error) {
	at, found := p.log.first(func(l line) bool { return l.Msg == "listed" && l.Resource == resource })
	if !found {
		return at, fmt.Errorf("the bridge's log does not say when it had listed %s", resource)
	}
	return at, nil
}

// Elected returns the time at which the bridge was elected. found is false if it was not elected yet. Before its
// election a bridge reads the backend for each request of its status.
func (p *Process) Elected() (at time.Time, found bool) {
	return p.log.first(func(l line) bool { return l.Msg == "this bridge leads" })
}

// Signal sends the bridge a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.child.Signal(s) }

// Kill ends the bridge with SIGKILL, if it runs, and waits for it.
func (p *Process) Kill() { p.child.Kill() }

// Done is closed when the bridge has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// Wait waits until a bridge that got a signal has ended, and returns its exit error.
func (p *Process) Wait() error { return p.child.Wait(stopTimeout) }

// Stop ends the bridge as an operator does, and waits until it has ended.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	return nil
}
