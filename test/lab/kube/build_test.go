package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// module creates a small module, and returns its build.
func module(t *testing.T, source string) (build, *buildLog) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, writeFiles(dir, map[string][]byte{
		"go.mod": []byte("module small\n\ngo 1.26.0\n"), "go.sum": nil, "main.go": []byte(source),
	}))
	said := &buildLog{}
	return build{Program: small, source: dir, cache: t.TempDir(), progress: said}, said
}

var small = Program{Title: "Kubernetes v0", Package: ".", Name: "small", Binary: "small"}

const good = "package main\n\nfunc main() {}\n"

func TestBuildOnce(t *testing.T) {
	b, said := module(t, good)
	var binaries [3]string
	var wg sync.WaitGroup
	for i := range binaries {
		wg.Go(func() {
			var err error
			binaries[i], err = b.run(t.Context())
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, 1, strings.Count(said.text.String(), "built Kubernetes"), "the other processes have waited: %s", &said.text)
	require.Equal(t, [3]string{binaries[0], binaries[0], binaries[0]}, binaries)
	require.FileExists(t, binaries[0])

	said.text.Reset()
	again, err := b.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, binaries[0], again)
	require.Empty(t, said.text.String(), "nothing is done and nothing said")

	require.NoError(t, os.WriteFile(filepath.Join(b.source, "main.go"), []byte(good+"\n// changed\n"), 0o644))
	other, err := b.run(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, binaries[0], other)
}

func TestBuildFails(t *testing.T) {
	b, _ := module(t, "package main\n\nfunc main() { wrong() }\n")
	binary, err := b.run(t.Context())
	require.ErrorContains(t, err, "undefined: wrong")
	require.NoFileExists(t, binary)
}

func TestBuildIsCancelled(t *testing.T) {
	b, _ := module(t, good)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	binary, err := b.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, binary)
}

func TestBuildWaitsForAnother(t *testing.T) {
	b, said := module(t, good)
	lock := filepath.Join(t.TempDir(), "lock")
	unlock, err := b.lock(t.Context(), lock)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.lock(ctx, lock)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, said.text.String(), "waiting for another process")
	unlock()
	unlock, err = b.lock(t.Context(), lock)
	require.NoError(t, err)
	unlock()
}

func TestBuildSaysThatItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, log := &buildLog{}, &buildLog{}
		fmt.Fprintln(log, "runtime")
		b := build{Program: small, progress: said}
		done := make(chan error)
		time.AfterFunc(25*time.Second, func() { done <- nil })
		require.NoError(t, b.reportUntil(done, log))
		require.Equal(t, "building Kubernetes v0: 10s, now runtime\nbuilding Kubernetes v0: 20s, now runtime\n", said.text.String())
	})
}

func TestBuildOfTests(t *testing.T) {
	b, _ := module(t, good)
	require.NoError(t, writeFiles(b.source, map[string][]byte{
		"main_test.go": []byte("package main\n\nimport \"testing\"\n\nfunc TestSmall(t *testing.T) { println(\"ran\") }\n"),
	}))
	b.Tests = true
	binary, err := b.run(t.Context())
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "ran")
}

func TestVersionIsTheModules(t *testing.T) {
	source, err := FindSource(Source)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(text), "k8s.io/kubernetes "+Version+"\n")
	require.Equal(t, 33, strings.Count(string(text), " => "), "replaced modules")
}

func TestSourceIsLookedForAbove(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := FindSource(Source)
	require.ErrorContains(t, err, "run this within the source tree")
}
