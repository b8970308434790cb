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

// ForTest starts a lab of hosts with switches and a controller that manages them, for a
// test, and closes both after. What the controller said of errors is shown when the test
// has failed. With -short the test is skipped; a missing part fails it.
func ForTest(t testing.TB, release Release, hosts ...string) *Controller {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root and OpenDaylight: run without -short")
	}
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
	for _, host := range lab.Hosts {
		if err := c.Manage(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func closed(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}
