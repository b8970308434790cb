package odle2e

import (
	"time"

	"github.com/stretchr/testify/require"
)

// rounds is how often everything is killed and started.
const rounds = 2

// testReboots goes through the reboot scenarios of the specification, again and again: the
// bridge agrees with the controller soon after that is ready, pods keep their addresses, and
// reach each other without a hand.
func (w *world) testReboots(pods []*pod) {
	ctx := w.t.Context()
	for round := range rounds {
		for _, scenario := range []struct {
			name   string
			reboot func() error
		}{
			{"the switch", func() error { return w.host.VSwitchd.Restart(ctx) }},
			{"the switch and its database", w.restartSwitch},
			{"the bridge", func() error { w.bridge.Kill(); w.bridge.Start(); return nil }},
			{"the controller", func() error { return w.c.Restart(ctx) }},
			{"the controller, without its datastore", func() error { return w.c.Wipe(ctx) }},
			{"all", w.restartAll},
		} {
			begun := time.Now()
			require.NoError(w.t, scenario.reboot(), scenario.name)
			down := time.Since(begun)
			agreed := w.awaitSync(converge)
			w.requireSame(pods)
			begun = time.Now()
			w.requireReach(pods...)
			reached := time.Since(begun)
			w.awaitConfirmed(true, pods...)
			w.awaitSync(converge)
			w.t.Logf("round %d, %s: back after %.1f s, in sync %.1f s later, pods reach each other %.1f s later, confirmed %.1f s later",
				round, scenario.name, down.Seconds(), agreed.Seconds(), reached.Seconds(), (time.Since(begun) - reached).Seconds())
		}
	}
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

// restartAll kills everything before it starts anything; the bridge is there first.
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
