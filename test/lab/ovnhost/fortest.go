package ovnhost

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
)

// labs counts the labs of this process, for unique names.
var labs atomic.Int64

// ForTest starts a lab for a test, and closes it afterwards. It first removes the labs of killed tests. If the
// test failed, it prints the lab's logs. With -short it skips the test; a missing prerequisite fails
// the test.
func ForTest(t testing.TB, hosts ...string) *Lab {
	t.Helper()
	return forTest(t, Config{Hosts: hosts})
}

// SwitchesForTest is ForTest for a lab of switches only.
func SwitchesForTest(t testing.TB, hosts ...string) *Lab {
	t.Helper()
	return forTest(t, Config{Hosts: hosts, SwitchesOnly: true})
}

func forTest(t testing.TB, cfg Config) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root and OVN")
	}
	if err := CleanupDead(); err != nil {
		t.Fatal(err)
	}
	cfg.Prefix = "t" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(labs.Add(1), 36)
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	lab, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, lab)
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func showLogs(t testing.TB, lab *Lab) {
	logs, err := filepath.Glob(filepath.Join(lab.Logs(), "*.log"))
	if err != nil {
		t.Error(err)
	}
	for _, log := range logs {
		t.Logf("the last of %s:\n%s", filepath.Base(log), lastLines(log))
	}
}
