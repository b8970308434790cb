package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The reference plugins, and their source.
const (
	referenceVersion = "v1.9.0"
	referenceModule  = "github.com/containernetworking/plugins/plugins/"
	ours             = "github.com/coe-bridge/coe-bridge/cmd/"
)

// bench has the data that all measurements share.
type bench struct {
	begun     time.Time
	dir       string // for all files; removed at the end
	reference string // folder of the reference plugins
}

// build builds the measured programs.
func (b *bench) build(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "benchcni"); err != nil {
		return fmt.Errorf("make a folder for the measurements: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a cache for the reference plugins: %w", err)
	}
	b.reference = filepath.Join(cache, "coe-bridge", "cni-plugins-"+referenceVersion)
	if _, err := os.Stat(filepath.Join(b.reference, "host-local")); err != nil {
		b.say("building the reference plugins %s, once", referenceVersion)
		err := goBuild(ctx, b.reference, "install", referenceModule+"main/bridge@"+referenceVersion, referenceModule+"ipam/host-local@"+referenceVersion)
		if err != nil {
			return err
		}
	}
	b.say("building coe-bridge and coe-cni")
	return goBuild(ctx, b.dir, "install", "-ldflags=-s -w", "-trimpath", "-buildvcs=false", ours+"coe-bridge", ours+"coe-cni")
}

// goBuild runs the go command, which writes programs to a folder.
func goBuild(ctx context.Context, to string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOBIN="+to)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (b *bench) close() error {
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("remove the files of the measurements: %w", err)
	}
	return nil
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}
