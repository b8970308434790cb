package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFocusIsOnOneTest(t *testing.T) {
	const title = "Kubernetes e2e suite "
	chosen := regexp.MustCompile(focus("[sig-network] DNS should (work) [Conformance]"))
	require.True(t, chosen.MatchString(title+"[sig-network] DNS should (work) [Conformance]"))
	for _, other := range []string{
		"[sig-network] DNS should (work) [Conformance] [Slow]",
		"[sig-network] DNS should work [Conformance]",
		"[sig-node] [sig-network]DNS should (work) [Conformance]",
	} {
		require.False(t, chosen.MatchString(title+other), other)
	}
}

func TestLogIsVerified(t *testing.T) {
	for text, passes := range map[string]bool{
		"SUCCESS! -- 1 Passed | 0 Failed | 0 Pending | 7000 Skipped\nPASS\n": true,
		"SUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 7001 Skipped\nPASS\n": false,
		"SUCCESS! -- 2 Passed | 0 Failed | 0 Pending | 6999 Skipped\nPASS\n": false,
		"": false,
	} {
		file := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		require.Equal(t, passes, verify(file) == nil, text)
	}
}

func TestResultIsARow(t *testing.T) {
	one := result{name: "[sig-network] A", took: 12400 * time.Millisecond, log: "/a.log"}
	require.Equal(t, "pass    12 s  [sig-network] A", one.String())
	one.err = errors.New("exit status 1")
	require.Equal(t, "FAIL    12 s  [sig-network] A\n              exit status 1; log: /a.log", one.String())
	require.ErrorContains(t, judge([]result{{}, one}), "1 of 2 tests")
	require.NoError(t, judge([]result{{}}))
}

func TestImagesHaveLibraries(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Debian packages: run without -short")
	}
	require.Empty(t, missing(), "Debian packages that are missing: make deps installs them")
	files, err := shellFiles(t.Context())
	require.NoError(t, err)
	require.Equal(t, "usr/bin/dig", files["/usr/bin/dig"])
	for _, to := range []string{"lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6"} {
		require.Equal(t, to, files["/"+to])
	}
	for from := range files {
		require.FileExists(t, from)
	}
	links, err := applets(t.Context())
	require.NoError(t, err)
	require.Equal(t, "busybox", links["bin/seq"])
	require.NotContains(t, links, "bin/sh")
	require.Equal(t, "agnhost", shortName("registry.example.org/e2e-test-images/agnhost:2.63.0"))
}
