package kubelab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Processes returns the IDs of the processes on the node, including containers, whose arguments start with argv; the program is
// compared by its base name.
func (n *Node) Processes(argv ...string) ([]int, error) {
	first, err := n.PID()
	if err != nil {
		return nil, err
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find processes of node %s: %w", n.Name, err)
	}
	var found []int
	for _, d := range procs {
		pid, err := strconv.Atoi(d.Name())
		if err == nil && n.has(first, pid) && begins(pid, argv) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// has reports whether a process is a descendant of the node's first process.
func (n *Node) has(first, pid int) bool {
	for pid > 1 && pid != first {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		_, after, _ := bytes.Cut(status, []byte("\nPPid:\t"))
		line, _, _ := bytes.Cut(after, []byte("\n"))
		if pid, err = strconv.Atoi(string(line)); err != nil {
			return false
		}
	}
	return pid == first
}

func begins(pid int, argv []string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return false
	}
	args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	args[0] = filepath.Base(args[0])
	return len(args) >= len(argv) && slices.Equal(args[:len(argv)], argv)
}

// Kill kills the processes that Processes returns. It fails if there are none.
func (n *Node) Kill(argv ...string) error {
	pids, err := n.Processes(argv...)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return fmt.Errorf("kill %s on node %s: no such process", strings.Join(argv, " "), n.Name)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill %s on node %s: %w", strings.Join(argv, " "), n.Name, err)
		}
	}
	return nil
}

// KillSandbox kills the process that holds the namespaces of a pod.
func (n *Node) KillSandbox(pod Place) error {
	want, err := os.Stat(pod.netns)
	if err != nil {
		return fmt.Errorf("kill sandbox of %s: %w", pod.Name, err)
	}
	pids, err := n.Processes("pause")
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if has, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(has, want) {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("kill sandbox of %s: no process on node %s is in its network", pod.Name, n.Name)
}
