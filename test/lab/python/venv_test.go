package python

import (
	"archive/zip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// wheel writes a package with one script, greet, and with requirements.
func wheel(t *testing.T, dir, requires string) string {
	t.Helper()
	path := filepath.Join(dir, "greeter-1.0-py3-none-any.whl")
	file, err := os.Create(path)
	require.NoError(t, err)
	archive := zip.NewWriter(file)
	for name, text := range map[string]string{
		"greeter.py":                             "def greet():\n    print('hello')\n",
		"greeter-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n" + requires,
		"greeter-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"greeter-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greeter:greet\n",
		"greeter-1.0.dist-info/RECORD":           "",
	} {
		entry, err := archive.Create(name)
		require.NoError(t, err)
		_, err = io.WriteString(entry, text)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, file.Close())
	return path
}

// requirements writes a file that requires the package.
func requirements(t *testing.T, requires string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Debian's python3-venv")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	path := filepath.Join(dir, "requirements.txt")
	require.NoError(t, os.WriteFile(path, []byte(wheel(t, dir, requires)+"\n"), 0o600))
	return path
}

func TestVenv(t *testing.T) {
	file := requirements(t, "")
	var mu sync.Mutex
	builds := 0
	count := func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		if string(p[:4]) == "made" {
			builds++
		}
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			dir, err := Venv(t.Context(), writer(count), file)
			if err != nil {
				t.Error(err)
				return
			}
			out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "greet")).CombinedOutput()
			if err != nil || string(out) != "hello\n" {
				t.Errorf("%v %s", err, out)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, builds, "the second process waits for the first")

	dir, err := Venv(t.Context(), io.Discard, file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "complete")))
	require.NoError(t, os.Remove(filepath.Join(dir, "bin", "greet")))
	_, err = Venv(t.Context(), writer(count), file)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "bin", "greet"), "an incomplete environment is created again")
	require.Equal(t, 2, builds)
}

func TestVenvWantsAllPinned(t *testing.T) {
	file := requirements(t, "Requires-Dist: flask (>=1)\n")
	_, err := Venv(t.Context(), io.Discard, file)
	require.ErrorContains(t, err, "flask")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "coe-bridge", "*", "complete"))
	require.NoError(t, err)
	require.Empty(t, left, "it is not taken for whole")
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
