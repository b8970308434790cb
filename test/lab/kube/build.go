package kube

import (
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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Version is the version of Kubernetes.
const Version = "v1.36.3"

// Source is the module of all programs, relative to the root of the tree. They share it, so that what
// several of them need is compiled once, and that their dependencies are not dependencies of the bridge.
const Source = "test/lab/kube/programs"

// reportInterval is the interval of progress reports of a build.
const reportInterval = 10 * time.Second

// ldflags omit symbols, and set the version that the programs report.
var ldflags = strings.Join([]string{
	"-s -w",
	"-X k8s.io/component-base/version.gitVersion=" + Version,
	"-X k8s.io/component-base/version.gitMajor=1",
	"-X k8s.io/component-base/version.gitMinor=36",
	"-X k8s.io/client-go/pkg/version.gitVersion=" + Version,
}, " ")

// Program is a program for tests. It is built from a module of its own in the source tree.
type Program struct {
	Title   string // for people, with its version
	Takes   string // the effort of building it, for people
	Package string // the package to build, in the module (./dns) or one that it requires
	Name    string // of its folder in the cache
	Binary  string // the name of its file in the folder
	LDFlags string
	Tests   bool // build the tests of the package, not the package
}

// controlPlane is etcd and Kubernetes.
var controlPlane = Program{
	Title: "Kubernetes " + Version, Takes: "four to five minutes of two processors, and 3 GB of Go's build cache",
	Package: "./hyperkube", Name: "kubernetes-" + Version, Binary: "hyperkube", LDFlags: ldflags,
}

// Build returns the path of the binary with etcd and Kubernetes: see Program.Build.
func Build(ctx context.Context, progress io.Writer) (binary string, err error) {
	return controlPlane.Build(ctx, progress)
}

// Build returns the path of the program's binary. If the user's cache does not have it, Build builds it, which
// takes minutes and is reported to progress. Concurrent processes wait for the first one. The working
// directory must be in the source tree.
func (p Program) Build(ctx context.Context, progress io.Writer) (binary string, err error) {
	b := build{Program: p, progress: progress}
	if b.source, err = FindSource(Source); err != nil {
		return "", fmt.Errorf("build %s: %w", p.Title, err)
	}
	if b.cache, err = os.UserCacheDir(); err != nil {
		return "", fmt.Errorf("build %s: find cache folder: %w", p.Title, err)
	}
	b.cache = filepath.Join(b.cache, "coe-bridge")
	if binary, err = b.run(ctx); err != nil {
		return "", fmt.Errorf("build %s: %w", p.Title, err)
	}
	return binary, nil
}

// FindSource finds a directory or file of the tree by its path in the tree, from the working directory upwards.
func FindSource(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		source := filepath.Join(dir, name)
		if exists(source) {
			return source, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("nothing named %s here or above: run this within the source tree", name)
		}
		dir = above
	}
}

// build builds the binary of a program from the module in source, into a directory of cache that is named after
// a hash of the inputs.
type build struct {
	Program
	source, cache string
	progress      io.Writer
}

func (b *build) run(ctx context.Context) (binary string, err error) {
	hash, err := b.hash()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.cache, b.Name+"-"+hash)
	binary = filepath.Join(dir, b.Binary)
	if exists(binary) {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := b.lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(binary) { // another process has built it meanwhile
		return binary, nil
	}
	return binary, b.make(ctx, binary)
}

// hash returns a short hash of everything that affects the binary.
func (b *build) hash() (string, error) {
	sum := sha256.New()
	names, err := filepath.Glob(filepath.Join(b.source, b.Package, "*.go")) // none if the package belongs to another module
	if err != nil {
		return "", err
	}
	for _, path := range append([]string{filepath.Join(b.source, "go.mod"), filepath.Join(b.source, "go.sum")}, names...) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(path), len(content), content)
	}
	fmt.Fprint(sum, b.LDFlags)
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock waits until no other process builds.
func (b *build) lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	try := func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	start := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	report := b.every(reportInterval)
	for err = try(); errors.Is(err, unix.EWOULDBLOCK); err = try() {
		report("waiting for another process that builds %s: %s", b.Title, since(start))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// make builds the binary under a temporary name, and renames it when it is complete.
func (b *build) make(ctx context.Context, binary string) error {
	b.say("building %s, once, into %s", b.Title, filepath.Dir(binary))
	b.say("this takes %s", b.Takes)
	start := time.Now()
	unfinished := binary + ".new"
	if err := b.compile(ctx, unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, binary); err != nil {
		return err
	}
	b.say("built %s in %s", b.Title, since(start))
	return nil
}

func (b *build) compile(ctx context.Context, target string) error {
	log := &buildLog{}
	verb := []string{"build", "-v"}
	if b.Tests {
		verb = []string{"test", "-c", "-vet=off"}
	}
	cmd := exec.CommandContext(ctx, "go", append(verb, "-trimpath", "-buildvcs=false", "-ldflags", b.LDFlags, "-o", target, b.Package)...)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = log, log
	// On an interrupt, go build also ends its compilers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see life.start
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	if err := b.reportUntil(done, log); err != nil {
		return fmt.Errorf("%w:\n%s", err, log.last())
	}
	return nil
}

func (b *build) reportUntil(done <-chan error, log *buildLog) error {
	start := time.Now()
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			b.say("building %s: %s%s", b.Title, since(start), log.current())
		}
	}
}

func (b *build) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// every returns a function that reports on its first call, and then once per interval.
func (b *build) every(interval time.Duration) func(format string, args ...any) {
	var spoken time.Time
	return func(format string, args ...any) {
		if time.Since(spoken) >= interval {
			spoken = time.Now()
			b.say(format, args...)
		}
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
