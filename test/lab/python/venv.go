// Package python creates Python environments from files of pinned requirements. Tests run external programs in
// them. The package needs Debian's python3-venv.
package python

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// buildTimeout bounds the creation of an environment, which is mostly downloads.
const buildTimeout = 10 * time.Minute

// Venv returns the directory of a Python virtual environment with exactly the packages of the
// requirements file. The file must list every package with its version ("name==1.2.3"), including
// dependencies. The programs are in the subdirectory bin.
//
// If the user's cache directory does not have the environment, Venv creates it, which takes up to a
// minute and is reported to progress. Concurrent processes wait for the first one. An incomplete
// environment is created again.
func Venv(ctx context.Context, progress io.Writer, requirements string) (dir string, err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	b := build{requirements: requirements, progress: progress}
	if err := b.locate(ctx); err != nil {
		return "", fmt.Errorf("make Python environment: %w", err)
	}
	if err := b.run(ctx); err != nil {
		return "", fmt.Errorf("make Python environment of %s in %s: %w", requirements, b.dir, err)
	}
	return b.dir, nil
}

// Environ returns the environment variables of this process for a program of a virtual environment. Python keeps what
// it compiles, even if a variable of this process prevents that: without it, Ansible compiles itself for each task.
func Environ() []string { return append(os.Environ(), "PYTHONDONTWRITEBYTECODE=") }

// build creates one environment.
type build struct {
	requirements string
	dir          string // its name is a hash of its contents
	progress     io.Writer
}

// locate sets the directory of the environment. The interpreter's version is part of the name, because an
// environment works only with this version.
func (b *build) locate(ctx context.Context) error {
	text, err := os.ReadFile(b.requirements)
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, "python3", "--version").Output()
	if err != nil {
		return fmt.Errorf("ask python3 for its version: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find cache folder: %w", err)
	}
	sum := sha256.Sum256(append(version, text...))
	b.dir = filepath.Join(cache, "coe-bridge", "python-"+hex.EncodeToString(sum[:])[:12])
	return nil
}

// complete returns the path of a file that exists when the environment is complete. Scripts contain the path of
// the environment, so it cannot be created elsewhere and moved.
func (b *build) complete() string { return filepath.Join(b.dir, "complete") }

func (b *build) run(ctx context.Context) error {
	if exists(b.complete()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, b.dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if exists(b.complete()) { // another process has created it meanwhile
		return nil
	}
	return b.make(ctx)
}

func (b *build) make(ctx context.Context) error {
	start := time.Now()
	fmt.Fprintf(b.progress, "making the Python environment of %s, once, in %s\n", b.requirements, b.dir)
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	pip := filepath.Join(b.dir, "bin", "pip")
	for _, command := range [][]string{
		{"python3", "-m", "venv", b.dir},
		// Packages that are not listed are not installed, and pip check reports them as missing. Python compiles what it
		// imports: Ansible has a hundred times as much.
		{pip, "install", "--no-compile", "--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--requirement", b.requirements},
		{pip, "check"},
	} {
		if err := b.command(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	fmt.Fprintf(b.progress, "made the Python environment of %s in %s\n", b.requirements, time.Since(start).Round(time.Second))
	return os.WriteFile(b.complete(), nil, 0o644)
}

// command runs a program, and reports its output to progress. An error also includes the output.
func (b *build) command(ctx context.Context, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = io.MultiWriter(b.progress, &said)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the kernel sends the signal when the forking thread ends
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// lock waits until no other process creates the environment.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
