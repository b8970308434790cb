package kubelab

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// logLines is the number of lines of each log that are printed when a test has failed.
const logLines = 12

// ForTest starts a cluster with this tree's coe-bridge for a test, and closes it afterwards. If the test failed, it prints the ends
// of the logs. With -short it skips the test; a missing prerequisite fails the test.
func ForTest(t testing.TB, nodes ...string) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root, OVN and Kubernetes: run without -short")
	}
	return forTest(t, Config{Nodes: nodes})
}

// OnOpenDaylight is ForTest for a cluster on a release of OpenDaylight. See odl.SkipUnlessAsked.
func OnOpenDaylight(t testing.TB, release odl.Release, nodes ...string) *Lab {
	t.Helper()
	odl.SkipUnlessAsked(t)
	return forTest(t, Config{Nodes: nodes, OpenDaylight: release})
}

func forTest(t testing.TB, cfg Config) *Lab {
	bin := t.TempDir()
	for _, name := range []string{"coe-bridge", "coe-cni"} {
		if err := buildOwn(t.Context(), "github.com/coe-bridge/coe-bridge/cmd/"+name, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Prefix, cfg.Bin, cfg.Log = "k"+strconv.Itoa(os.Getpid()), bin, slog.New(slog.NewTextHandler(t.Output(), nil))
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			l.showLogs(t)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *Lab) showLogs(t testing.TB) {
	for _, pattern := range []string{
		filepath.Join(l.Logs(), "*.log"), l.dir.path(nodesDir, "*", "log", "*.log"), l.dir.path(nodesDir, "*", "log/pods", Namespace+"_*", "*", "*.log"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Error(err)
		}
		for _, f := range files {
			t.Logf("the last of %s:\n%s", strings.TrimPrefix(f, stateRoot), lastLines(f))
		}
	}
	if l.OpenDaylight != nil {
		t.Log(l.OpenDaylight.LastErrors())
	}
	all, err := l.Run(context.Background(), "", "get", "pods", "--all-namespaces", "--output=wide")
	t.Logf("pods: %v\n%s", err, all)
}

func lastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-logLines):], "\n")
}
