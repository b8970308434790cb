package cache_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
)

func TestMakeOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	folder := cache.Folder{Title: "a thing", Name: "thing", Inputs: []string{"1"}}
	var fills atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			dir, err := folder.Make(t.Context(), io.Discard, func(_ context.Context, dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "content"), nil, 0o644)
			})
			if err != nil || !exists(filepath.Join(dir, "content")) {
				t.Errorf("folder %s: %v", dir, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, fills.Load())
}

func TestOtherInputsAreAnotherFolder(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	nothing := func(context.Context, string) error { return nil }
	seen := map[string]bool{}
	for _, inputs := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}} {
		dir, err := cache.Folder{Name: "thing", Inputs: inputs}.Make(t.Context(), io.Discard, nothing)
		require.NoError(t, err)
		seen[dir] = true
	}
	require.Len(t, seen, 3)
}

func TestWhatBrokeOffIsGoneOnWith(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	folder := cache.Folder{Name: "thing"}
	broken := errors.New("no network")
	_, err := folder.Make(t.Context(), io.Discard, func(_ context.Context, dir string) error {
		return errors.Join(broken, os.WriteFile(filepath.Join(dir, "first"), nil, 0o644))
	})
	require.ErrorIs(t, err, broken)

	_, err = folder.Make(t.Context(), io.Discard, func(_ context.Context, dir string) error {
		_, err := os.Stat(filepath.Join(dir, "first"))
		return err
	})
	require.NoError(t, err)
}

func TestRun(t *testing.T) {
	require.NoError(t, cache.Run(t.Context(), io.Discard, "ask", exec.Command("true")))

	err := cache.Run(t.Context(), io.Discard, "ask", exec.Command("sh", "-c", "echo why; exit 3"))
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "why")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = cache.Run(ctx, io.Discard, "ask", exec.Command("sleep", "60"))
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, strings.HasPrefix(err.Error(), "ask: "))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
