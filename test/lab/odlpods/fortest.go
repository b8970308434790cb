package odlpods

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// Programs builds coe-bridge and coe-cni for a test, and returns their directory.
func Programs(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if _, err := serve.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "coe-cni"), "github.com/coe-bridge/coe-bridge/cmd/coe-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build coe-cni: %v: %s", err, out)
	}
	return dir
}
