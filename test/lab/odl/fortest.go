package odl

import (
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// labs counts the labs of this process, for unique names.
var labs atomic.Int64

// asked is the environment variable that enables these tests. make test and make test-odl run them separately and one after the
// other, because a busy machine needs minutes to start a controller.
const asked = "COE_BRIDGE_TEST_ODL"

// SkipUnlessAsked skips a test that starts an OpenDaylight, except in make test-odl.
func SkipUnlessAsked(t testing.TB) {
	t.Helper()
	if os.Getenv(asked) == "" {
		t.Skip("starts a real OpenDaylight: run make test-odl (root)")
	}
}

// ForTest starts a lab of hosts with switches and a controller that manages them, and closes both at
// the end of the test. If the test failed, it prints the controller's errors. See SkipUnlessAsked;
// a missing prerequisite fails the test.
func ForTest(t testing.TB, release Release, hosts ...string) *Controller {
	t.Helper()
	c := Alone(t, release, hosts...)
	for _, host := range c.Lab.Hosts {
		if err := c.Manage(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Alone is ForTest without a connection between the hosts' switches and the controller.
func Alone(t testing.TB, release Release, hosts ...string) *Controller {
	t.Helper()
	lab := switches(t, hosts)
	c, err := Start(t.Context(), Config{Lab: lab, Release: release, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, c)
	return c
}

// Members is Alone for a cluster of three.
func Members(t testing.TB, release Release, hosts ...string) []*Controller {
	t.Helper()
	lab := switches(t, hosts)
	all, err := StartCluster(t.Context(), Config{Lab: lab, Release: release, Progress: t.Output()}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		closeAtEnd(t, c)
	}
	return all
}

// switches starts a lab of hosts with switches.
func switches(t testing.TB, hosts []string) *ovnhost.Lab {
	t.Helper()
	SkipUnlessAsked(t)
	if err := ovnhost.CleanupDead(); err != nil {
		t.Fatal(err)
	}
	lab, err := ovnhost.Start(t.Context(), ovnhost.Config{
		Prefix: "o" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(labs.Add(1), 36),
		Hosts:  hosts, SwitchesOnly: true,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, lab.Close()) })
	return lab
}

func closeAtEnd(t testing.TB, c *Controller) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.LastErrors())
		}
		closed(t, c.Close())
	})
}

func closed(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}
