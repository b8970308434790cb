// Package odlcluster tests the bridge on a cluster of three real OpenDaylights. Members are frozen, killed, separated and restarted, while
// pods come and go.
package odlcluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
)

// TestClusterOnRealOpenDaylight tests pods on two hosts that a cluster of three members programs, from the POST of a client to
// packets.
func TestClusterOnRealOpenDaylight(t *testing.T) {
	odl.SkipUnlessAsked(t)
	bin := odlpods.Programs(t)
	begun := time.Now()
	members := odl.Members(t, odl.Oxygen, "host1", "host2")
	t.Logf("three members are ready after %s", time.Since(begun).Round(time.Second))
	lab, err := odlpods.Start(t.Context(), odlpods.Config{Controller: members[0], Others: members[1:], Bin: bin, CallDeadline: callDeadline})
	require.NoError(t, err)
	w := &world{t: t, lab: lab, members: members}
	w.step("pods are plugged in, and all reach all", w.testPods)
	w.step("the leader is separated from the others, and joins again", w.testSeparated)
	w.step("the leader is frozen for a minute", w.testFrozen)
	w.step("the leader is killed, and started again", w.testKilled)
	w.step("all members are restarted", w.testRestarted)
	w.step("all members are restarted without datastores", w.testWiped)
	w.step("pods are unplugged", w.testUnplugged)
}

// testPods plugs pods in. Each switch is connected to all members.
func (w *world) testPods() {
	for i, host := range []string{"host1", "host2", "host1"} {
		w.plug(w.newPod([]string{"web", "web", "shop"}[i], host))
	}
	w.awaitConnections(len(w.members))
	w.requireAll()
	var err error
	w.script, err = w.lab.StartScript(w.t.Context(), w.members[0])
	require.NoError(w.t, err)
	w.startScript()()
	w.logMemory()
}

// testFrozen freezes the member that leads the shard with the entries of the bridge. Its connections stay open. New pods are plugged in
// meanwhile and afterwards.
func (w *world) testFrozen() {
	leader := w.leader()
	w.flow(longestGap, func() {
		require.NoError(w.t, leader.Process().Stop())
		w.away = leader
		thawed := make(chan error, 1)
		time.AfterFunc(frozenFor, func() { thawed <- leader.Process().Cont() })
		written := w.startScript()
		w.requireNewPod()
		written()
		require.NoError(w.t, <-thawed)
		w.away = nil
		w.requireNewPod()
		w.unplugLast()
	})
	w.requireWhole()
}

// testKilled kills the member that leads the shard. The packets of running pods go on. A new pod is plugged in, and another one goes. The
// member comes back.
func (w *world) testKilled() {
	leader := w.leader()
	w.flow(longestGap, func() {
		require.NoError(w.t, leader.Kill())
		written := w.startScript()
		w.requireNewPod()
		written()
		w.unplugLast()
		w.awaitConnections(len(w.members) - 1)
		w.requireAll()
		require.NoError(w.t, leader.Start(w.t.Context()))
		w.requireNewPod()
	})
	w.requireWhole()
}

// testSeparated separates the member that leads the shard from the others. Switches and the bridge reach it. New pods are plugged in
// meanwhile, and when it is back.
func (w *world) testSeparated() {
	leader := w.leader()
	w.flow(longestGap, func() {
		require.NoError(w.t, leader.Separate(w.t.Context()))
		w.away = leader
		written := w.startScript()
		w.requireNewPod()
		written()
		require.NoError(w.t, leader.Join(w.t.Context()))
		w.away = nil
		w.requireNewPod()
		w.unplugLast()
	})
	w.requireWhole()
}

// testRestarted kills all members, and starts them with their datastores.
func (w *world) testRestarted() {
	w.flow(longestGap, func() {
		require.NoError(w.t, odl.RestartCluster(w.t.Context(), w.members))
		w.requireNewPod()
		w.unplugLast()
	})
	w.requireWhole()
}

// testWiped kills all members, and starts them without their datastores. The bridge writes its entries again, and the switches forget
// their flows.
func (w *world) testWiped() {
	require.NoError(w.t, odl.WipeCluster(w.t.Context(), w.members))
	w.requireNewPod()
	w.unplugLast()
	w.requireWhole()
}

// testUnplugged unplugs and deletes all pods. The datastore has nothing of them.
func (w *world) testUnplugged() {
	for _, p := range w.pods {
		w.unplug(p)
	}
	w.pods = nil
	w.await("the datastore is empty", func(ctx context.Context) error { return w.hasOnly(ctx) })
}
