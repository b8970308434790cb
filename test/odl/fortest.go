package odl

import (
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// labs counts the labs of this process, for names of their own.
var labs atomic.Int64

// asked is the environment variable by which make test and make test-odl have these tests run, apart
// from the others, one after the other, since a machine that has more to do than a controller
// needs minutes to start one.
const asked = "COE_BRIDGE_TEST_ODL"

// SkipUnlessAsked skips a test that starts an OpenDaylight, but for make test-odl.
func SkipUnlessAsked(t testing.TB) {
	t.Helper()
	if os.Getenv(asked) == "" {
		t.Skip("starts a real OpenDaylight: run make test-odl (root)")
	}
}

// ForTest starts a lab of hosts with switches and a controller that manages them, for a
// test, and closes both after. What the controller said of errors is shown when the test
// has failed. See SkipUnlessAsked; a missing part fails the test.
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

// Alone is ForTest of which the hosts' switches know nothing of the controller.
func Alone(t testing.TB, release Release, hosts ...string) *Controller {
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
	c, err := Start(t.Context(), Config{Lab: lab, Release: release, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.LastErrors())
		}
		closed(t, c.Close())
	})
	return c
}

func closed(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}
