// Package cache keeps directories that tests need and that take long to create. They are in the user's
// cache directory. Each is created once, by one process.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ReportInterval is the interval of progress reports.
const ReportInterval = 10 * time.Second

// lockInterval is the interval of checks whether another process has finished.
const lockInterval = 200 * time.Millisecond

// completeFile exists in a complete directory. Some installed files contain the path of the directory, so
// it cannot be created elsewhere and moved.
const completeFile = "complete"

// Folder describes the content of a directory.
type Folder struct {
	Title string // for people, with its version
	Takes string // the effort of making it, for people
	Name  string // of the folder
	// Inputs are everything that determines the content: other inputs use another directory.
	Inputs []string
}

// Make returns the path of a directory. If it is not complete, Make calls fill, which finds what an
// interrupted call has left, and reports to progress. Concurrent processes wait for the first one.
func (f Folder) Make(ctx context.Context, progress io.Writer, fill func(ctx context.Context, dir string) error) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("make %s: find cache folder: %w", f.Title, err)
	}
	dir := filepath.Join(root, "coe-bridge", f.Name+"-"+hash(f.Inputs))
	if complete(dir) {
		return dir, nil
	}
	if err := f.make(ctx, progress, dir, fill); err != nil {
		return "", fmt.Errorf("make %s in %s: %w", f.Title, dir, err)
	}
	return dir, nil
}

// hash returns a short hash of the inputs.
func hash(inputs []string) string {
	sum := sha256.New()
	for _, i := range inputs {
		fmt.Fprintf(sum, "%d\n%s", len(i), i)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, completeFile))
	return err == nil
}

func (f Folder) make(ctx context.Context, progress io.Writer, dir string, fill func(context.Context, string) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := f.lock(ctx, progress, dir)
	if err != nil {
		return err
	}
	defer unlock()
	if complete(dir) { // another process has created it meanwhile
		return nil
	}
	fmt.Fprintf(progress, "making %s, once, in %s\nthis takes %s\n", f.Title, dir, f.Takes)
	start := time.Now()
	if err := fill(ctx, dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, completeFile), nil, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(progress, "made %s in %s\n", f.Title, time.Since(start).Round(time.Second))
	return nil
}

// lock waits until no other process creates the directory.
func (f Folder) lock(ctx context.Context, progress io.Writer, dir string) (unlock func(), err error) {
	file, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	report := every(ReportInterval)
	for start := time.Now(); ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		if report() {
			fmt.Fprintf(progress, "waiting for another process that makes %s: %s\n", f.Title, time.Since(start).Round(time.Second))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		}
	}
}

// every returns a function that returns true on its first call, and then once per interval.
func every(interval time.Duration) func() bool {
	var spoken time.Time
	return func() bool {
		now := time.Now()
		if now.Sub(spoken) < interval {
			return false
		}
		spoken = now
		return true
	}
}
