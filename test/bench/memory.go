package main

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	memoryPods    = 50_000
	memoryBound   = 600e6
	restartBound  = 5 * time.Second
	stopTimeout   = 30 * time.Second
	serveTimeout  = time.Minute
	podsPerBody   = 1000
	megabyte      = 1e6
	bridgePackage = "github.com/coe-bridge/coe-bridge/cmd/coe-bridge"
)

// measureMemory fills a bridge, a process of its own with the memory backend,
// with 50,000 pods and reads how much memory it has resident. It stops the
// bridge, and measures from the start of the process until it is in sync again.
func measureMemory(ctx context.Context, b *bench) (figures []figure, err error) {
	program := filepath.Join(b.dir, "coe-bridge")
	b.say("building the bridge")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, bridgePackage).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the bridge: %w: %s", err, out)
	}
	dir, err := b.folder("memory")
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--auth-file", b.usersFile, "--data-dir", dir, "--log-format", "json"}
	begun := time.Now()
	full, err := b.fullChild(ctx, program, args)
	if err != nil {
		return nil, err
	}
	b.say("the bridge had its pods after %s, and has %.0f MB resident; starting it again", short(time.Since(begun)), full/megabyte)
	begun = time.Now()
	again, err := startChild(ctx, program, args)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, again.stop()) }()
	if err := again.awaitSync(ctx, memoryPods); err != nil {
		return nil, err
	}
	restart := time.Since(begun)
	after, err := again.resident()
	if err != nil {
		return nil, err
	}
	b.say("the bridge is in sync again after %s, and has %.0f MB resident", short(restart), after/megabyte)
	return []figure{
		{
			name:     "memory with 50,000 pods in 200 namespaces",
			measured: fmt.Sprintf("%.0f MB resident (%.0f MB after a restart)", full/megabyte, after/megabyte),
			bound:    fmt.Sprintf("at most %.0f MB", memoryBound/megabyte), within: max(full, after) <= memoryBound,
		},
		atMost("with these, process start to in-sync", restart, restartBound),
	}, nil
}

// fullChild fills a bridge and stops it. It returns what was resident of it.
func (b *bench) fullChild(ctx context.Context, program string, args []string) (bytes float64, err error) {
	c, err := startChild(ctx, program, args)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	b.say("filling the bridge with 50,000 pods, 1,000 in a request")
	if err := c.fill(ctx, synth.Cluster{Nodes: 100, Namespaces: 200}, memoryPods, podsPerBody); err != nil {
		return 0, err
	}
	return c.resident()
}

// child is a bridge in a process of its own.
type child struct {
	*client
	process *exec.Cmd
	log     io.ReadCloser
}

// startChild starts a bridge and learns from its log where it serves.
func startChild(ctx context.Context, program string, args []string) (*child, error) {
	c := &child{process: exec.CommandContext(ctx, program, args...)}
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if c.log, err = c.process.StderrPipe(); err != nil {
		return nil, fmt.Errorf("read the bridge's log: %w", err)
	}
	if err := c.process.Start(); err != nil {
		return nil, fmt.Errorf("start the bridge: %w", err)
	}
	served := make(chan string, 1)
	go c.follow(served)
	timeout := time.NewTimer(serveTimeout)
	defer timeout.Stop()
	select {
	case url, ok := <-served:
		if ok {
			c.client = newClient(url)
			return c, nil
		}
		err = errors.New("it ended; its log says why")
	case <-timeout.C:
		err = fmt.Errorf("it does not serve after %s", serveTimeout)
	}
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
	return nil, fmt.Errorf("start the bridge: %w", err)
}

// follow reads the log to its end: it tells where the bridge serves, and passes
// on what a person must see.
func (c *child) follow(served chan<- string) {
	defer close(served)
	for lines := bufio.NewScanner(c.log); lines.Scan(); {
		var line struct{ Level, Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Level == "INFO" {
			if line.Msg == "serving" {
				served <- line.URL
			}
			continue
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
}

// stop ends the bridge as an operator does, and waits for it.
func (c *child) stop() error {
	c.close()
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = c.process.Process.Kill() })
	defer kill.Stop()
	if err := c.process.Wait(); err != nil {
		return fmt.Errorf("stop the bridge: %w", err)
	}
	return nil
}

// resident is how many bytes of the bridge are in memory.
func (c *child) resident() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the bridge's memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		value, found := strings.CutPrefix(line, "VmRSS:")
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("read the bridge's memory: %w", err)
		}
		return kilobytes * 1024, nil
	}
	return 0, errors.New("read the bridge's memory: the kernel does not tell")
}
