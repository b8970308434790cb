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

// Version is the Kubernetes that runs.
const Version = "v1.36.3"

// sourceDir is the module of the one binary, from the root of the tree.
const sourceDir = "test/kube/hyperkube"

// reportInterval is how often a build says that it goes on.
const reportInterval = 10 * time.Second

// ldflags leave symbols out, and give the programs the version that clients ask for.
var ldflags = strings.Join([]string{
	"-s -w",
	"-X k8s.io/component-base/version.gitVersion=" + Version,
	"-X k8s.io/component-base/version.gitMajor=1",
	"-X k8s.io/component-base/version.gitMinor=36",
	"-X k8s.io/client-go/pkg/version.gitVersion=" + Version,
}, " ")

// Build returns the path of the binary that holds etcd and Kubernetes. When the
// user's cache folder does not have it, Build first makes it, which takes minutes
// and is reported to progress. Processes that build at the same time wait for the
// first. It is to be called from within the source tree.
func Build(ctx context.Context, progress io.Writer) (binary string, err error) {
	b := build{version: Version, progress: progress}
	if b.source, err = findSource(); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	if b.cache, err = os.UserCacheDir(); err != nil {
		return "", fmt.Errorf("build Kubernetes: find cache folder: %w", err)
	}
	b.cache = filepath.Join(b.cache, "coe-bridge")
	if binary, err = b.run(ctx); err != nil {
		return "", fmt.Errorf("build Kubernetes: %w", err)
	}
	return binary, nil
}

// findSource looks for the module in the working folder and those above it.
func findSource() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		source := filepath.Join(dir, sourceDir)
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("no folder %s here or above: run this within the source tree", sourceDir)
		}
		dir = above
	}
}

// build makes one binary of the module in source, in a folder of cache that is
// named after what goes into it.
type build struct {
	source, cache, version string
	progress               io.Writer
}

func (b *build) run(ctx context.Context) (binary string, err error) {
	hash, err := b.hash()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.cache, "kubernetes-"+b.version+"-"+hash)
	binary = filepath.Join(dir, "hyperkube")
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
	if exists(binary) { // another process has made it meanwhile
		return binary, nil
	}
	return binary, b.make(ctx, binary)
}

// hash is short, and different when anything that goes into the binary is.
func (b *build) hash() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(b.source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	}
	fmt.Fprint(sum, ldflags)
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
		report("waiting for another process that builds Kubernetes %s: %s", b.version, since(start))
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

// make builds the binary under another name and gives it its own when it is whole.
func (b *build) make(ctx context.Context, binary string) error {
	b.say("building Kubernetes %s, once, into %s", b.version, filepath.Dir(binary))
	b.say("this takes four to five minutes of two processors, and 3 GB of Go's build cache")
	start := time.Now()
	unfinished := binary + ".new"
	if err := b.compile(ctx, unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, binary); err != nil {
		return err
	}
	b.say("built Kubernetes %s in %s", b.version, since(start))
	return nil
}

func (b *build) compile(ctx context.Context, target string) error {
	log := &buildLog{}
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", target, ".")
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = log, log
	// Interrupted, go build ends its compilers too.
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
			b.say("building Kubernetes %s: %s, now %s", b.version, since(start), log.current())
		}
	}
}

func (b *build) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// every returns a say that speaks when it is first called, and then once an interval.
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
