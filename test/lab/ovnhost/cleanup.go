package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cleanupTimeout bounds the removal of a lab, and the wait for one killed process.
const cleanupTimeout = 2 * time.Minute

// Exists reports whether a lab with that prefix exists, running or left over.
func Exists(prefix string) bool {
	_, err := os.Stat(filepath.Join(stateRoot, prefix))
	return err == nil
}

// Cleanup removes everything of the lab with that prefix: its processes, then its namespaces with
// their links, then its files. It recognises processes by PID and start time, or because they are
// in one of the namespaces. It is not an error if there is no such lab. Cleanup may be repeated
// after an error.
func Cleanup(prefix string) error {
	if !labName.MatchString(prefix) {
		return fmt.Errorf("clean up lab %q: not a lab's name", prefix)
	}
	unlock, err := lockState()
	if err != nil {
		return err
	}
	defer unlock()
	return cleanup(filepath.Join(stateRoot, prefix))
}

// CleanupDead removes every lab whose owner has ended without removing it, except labs with Survive.
func CleanupDead() error {
	unlock, err := lockState()
	if err != nil {
		return err
	}
	defer unlock()
	dirs, err := os.ReadDir(stateRoot)
	if err != nil {
		return fmt.Errorf("list labs: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		dir := filepath.Join(stateRoot, d.Name())
		dead, err := ownerDead(dir)
		if err == nil && dead {
			err = cleanup(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func ownerDead(dir string) (bool, error) {
	entries, err := readJournal(dir)
	if err != nil {
		return false, err
	}
	if len(entries) == 0 || entries[0].Owner == nil {
		return true, nil // the owner was killed before it wrote a line: the lab has only a folder
	}
	o := entries[0].Owner
	return !o.Survive && !o.alive(), nil
}

func cleanup(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	entries, err := readJournal(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Process != nil {
			errs = append(errs, e.Process.kill())
		}
	}
	for _, e := range entries {
		if e.Namespace != "" {
			errs = append(errs, removeNamespace(ctx, e.Namespace))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	return nil
}

// kill kills exactly this process, and waits for its end. It is not an error if the process is gone. A pidfd
// ensures that the PID is not reused between check and signal.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // the PID is free, or a thread of another process has it: ENOENT, and EINVAL before Linux 6.15
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	return awaitEnd(fd, p.Pid)
}

func awaitEnd(pidfd, pid int) error {
	deadline := time.Now().Add(cleanupTimeout)
	for {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return fmt.Errorf("kill process %d: it goes on after SIGKILL", pid)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
	}
}

// members returns the processes in a network namespace, except this one.
func members(netns string) ([]process, error) {
	want, err := os.Stat(namespacePath(netns))
	if err != nil {
		return nil, err
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var in []process
	for _, d := range procs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := processOf(pid)
		if err != nil {
			continue // it has ended meanwhile
		}
		if ns, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(ns, want) {
			in = append(in, p)
		}
	}
	return in, nil
}
