package odlpods

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// Build builds coe-bridge and coe-cni in a directory.
func Build(ctx context.Context, dir string) error {
	if _, err := serve.Build(ctx, dir); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "coe-cni"), "github.com/coe-bridge/coe-bridge/cmd/coe-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build coe-cni: %w: %s", err, out)
	}
	return nil
}

// Programs builds coe-bridge and coe-cni for a test, and returns their directory.
func Programs(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
