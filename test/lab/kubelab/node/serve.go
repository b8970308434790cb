package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// restartDelay is the delay before a program is restarted.
	restartDelay = time.Second
	// startTimeout bounds the time until containerd listens.
	startTimeout = time.Minute
	pollInterval = 20 * time.Millisecond
)

// reap runs this program again to serve, and waits for it and for orphaned processes, which the first process of the node
// inherits.
func (n *node) reap() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+serving)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("wait: %w", err)
		}
		if pid == cmd.Process.Pid {
			return errors.New("the process that serves has ended")
		}
	}
}

// serve runs the node's programs, and restarts them when they end. It returns only if they cannot be started.
func (n *node) serve() error {
	failed := make(chan error)
	go func() { failed <- keep("containerd", "containerd", "--config="+configDir+"/containerd.toml") }()
	if err := awaitContainerd(); err != nil {
		return err
	}
	if err := importImages(); err != nil {
		return err
	}
	kubelet := append([]string{
		toolsFile, "kubelet", "--config=" + configDir + "/kubelet.yaml", "--kubeconfig=" + configDir + "/kubelet.kubeconfig",
		"--hostname-override=" + n.name,
	}, n.kubelet...)
	go func() { failed <- keep("kubelet", kubelet...) }()
	return <-failed
}

// keep runs a program, and restarts it when it ends, like a service manager.
func keep(name string, argv ...string) error {
	log, err := os.OpenFile(filepath.Join("/var/log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	for {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		slog.Info("started", "program", name, "pid", cmd.Process.Pid)
		slog.Info("ended", "program", name, "how", cmd.Wait())
		<-time.After(restartDelay)
	}
}

func awaitContainerd() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", containerdSocket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w", err)
		}
	}
}

// importImages imports the images into containerd, and removes their files.
func importImages() error {
	files, err := filepath.Glob(imageDir + "/*.tar")
	if err != nil {
		return fmt.Errorf("find images: %w", err)
	}
	for _, f := range files {
		if out, err := exec.Command("ctr", "--namespace=k8s.io", "images", "import", f).CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s: %w: %s", f, err, out)
		}
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("import image: %w", err)
		}
		slog.Info("imported", "image", filepath.Base(f))
	}
	return nil
}
