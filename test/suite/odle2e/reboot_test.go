package odle2e

import (
	"flag"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// rounds is the number of rounds of reboots. The start of a controller takes half a minute on a machine
// without other work. So there is one round by default, in which the controller is started twice.
var rounds = flag.Int("rounds", 1, "number of rounds of the reboot scenarios; with 2 or more there is one more scenario")

// scenario is a reboot scenario of the specification.
type scenario struct {
	name   string
	reboot func() error
	// stale means that the switch has old flows and groups that must be removed. Usually the
	// agent does that (test/lab/odlpods), but this test has no agent.
	stale bool
}

func (w *world) scenarios() []scenario {
	ctx := w.t.Context()
	all := []scenario{
		{name: "the switch", reboot: func() error { return w.host.VSwitchd.Restart(ctx) }},
		{name: "the switch, again", reboot: func() error { return w.host.VSwitchd.Restart(ctx) }},
		{name: "the switch and its database", reboot: w.restartSwitch},
		{name: "the bridge", reboot: func() error { w.bridge.Kill(); w.bridge.Start(); return nil }},
		{name: "the controller, without its datastore", reboot: func() error { return w.c.Wipe(ctx) }, stale: true},
		{name: "all", reboot: w.restartAll},
	}
	if *rounds > 1 {
		all = append(all, scenario{name: "the controller", reboot: func() error { return w.c.Restart(ctx) }})
	}
	return all
}

// testReboots runs the scenarios. Soon after the controller is ready, the bridge is in sync. Pods keep
// their addresses, and reach each other again without help.
func (w *world) testReboots(pods []*pod) {
	for round := range *rounds {
		for _, s := range w.scenarios() {
			w.testReboot(round, s, pods)
		}
	}
}

func (w *world) testReboot(round int, s scenario, pods []*pod) {
	begun := time.Now()
	require.NoError(w.t, s.reboot(), s.name)
	down := time.Since(begun)
	agreed := w.awaitSync(converge)
	w.requireSame(pods)
	if s.stale {
		w.awaitConfirmed(true, pods...)
		w.forget()
	}
	begun = time.Now()
	w.requireReach(pods...)
	reached := time.Since(begun)
	w.awaitConfirmed(true, pods...)
	confirmed := time.Since(begun)
	w.requireReach(pods...) // with the new flows
	w.awaitSync(converge)
	w.t.Logf("round %d, %s: back after %.1f s, in sync %.1f s later, pods reach each other %.1f s later, confirmed %.1f s later",
		round, s.name, down.Seconds(), agreed.Seconds(), reached.Seconds(), (confirmed - reached).Seconds())
}

// forget removes the flows and groups of the switch, as an agent does.
func (w *world) forget() {
	w.t.Helper()
	vsctl := func(args ...string) string {
		out, err := w.host.VSCtl(w.t.Context(), args...)
		require.NoError(w.t, err)
		return out
	}
	controllers := strings.Fields(vsctl("get-controller", odl.Bridge))
	vsctl("del-controller", odl.Bridge)
	<-time.After(time.Second)
	vsctl(append([]string{"set-controller", odl.Bridge}, controllers...)...)
}

func (w *world) restartSwitch() error {
	if err := w.host.VSwitchd.Kill(); err != nil {
		return err
	}
	if err := w.host.OVSDB.Restart(w.t.Context()); err != nil {
		return err
	}
	return w.host.VSwitchd.Start(w.t.Context())
}

// restartAll kills all programs, and then starts them, the bridge first.
func (w *world) restartAll() error {
	w.bridge.Kill()
	if err := w.c.Kill(); err != nil {
		return err
	}
	if err := w.restartSwitch(); err != nil {
		return err
	}
	w.bridge.Start()
	return w.c.Start(w.t.Context())
}

// requireSame requires that pods have the addresses and ports with which they were plugged in.
func (w *world) requireSame(pods []*pod) {
	w.t.Helper()
	for _, p := range pods {
		r, err := w.record(p)
		require.NoError(w.t, err)
		now := *p
		require.NoError(w.t, now.take(r, w.host.Name))
		require.Equal(w.t, p.port, now.port)
	}
}
