package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const nullPackage = "github.com/coe-bridge/coe-bridge/test/bench/kube/nullcontroller"

func buildNull(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "nullcontroller")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, nullPackage).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the null controller: %w: %s", err, out)
	}
	return program, nil
}

// annotator is a program that annotates pods: the bridge, or the null controller.
type annotator interface{ Stop() error }

// null is the null controller, in its own process.
type null struct{ process *exec.Cmd }

// startNull starts the null controller, and returns when it watches pods.
func (w *world) startNull(ctx context.Context) (*null, error) {
	n := &null{exec.CommandContext(ctx, w.null, w.plane.Kubeconfig())}
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.process.Stderr = os.Stderr
	out, err := n.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the null controller: %w", err)
	}
	if err := n.process.Start(); err != nil {
		return nil, fmt.Errorf("start the null controller: %w", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		_ = n.process.Process.Kill()
		_ = n.process.Wait()
		return nil, fmt.Errorf("start the null controller: it says %q: %w", line, err)
	}
	return n, nil
}

func (n *null) Stop() error {
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the null controller: %w", err)
	}
	if err := n.process.Wait(); err != nil {
		return fmt.Errorf("stop the null controller: %w", errors.Join(err, n.process.Process.Kill()))
	}
	return nil
}
