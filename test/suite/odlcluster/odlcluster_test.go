// Package odlcluster tests the bridge on a cluster of three real OpenDaylights. Members are frozen, killed, separated and restarted, while
// pods come and go. A proxy in front of each member records the writes of the bridge.
package odlcluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// TestClusterOnRealOpenDaylight tests pods on two hosts that a cluster of three members programs, from the POST of a client to packets.
// Each step but the first works without the others.
func TestClusterOnRealOpenDaylight(t *testing.T) {
	w := newWorld(t)
	w.step("pods are plugged in, and all reach all", func() { w.requireOnce(w.testPods) })
	for _, f := range faults {
		w.step("the leader is "+f.name, func() { w.testFault(f, w.leader()) })
		w.step("the follower that the bridge uses is "+f.name, func() { w.testFault(f, w.useFollower()) })
	}
	for _, f := range faults {
		w.step("the follower that the bridge does not use is "+f.name, func() { w.testFault(f, w.neither(w.leader(), w.useFollower())) })
	}
	w.step("two members are restarted", func() { w.testRestarted(w.members[:2]) })
	w.step("all members are restarted, twice", func() { w.testRestarted(w.members); w.testRestarted(w.members) })
	w.step("a switch is restarted, twice", func() { w.testSwitch(); w.testSwitch() })
	w.step("all members are restarted without datastores", w.testWiped)
	w.step("pods are unplugged", w.testUnplugged)
}

// testPods plugs pods in. Each switch is connected to all members.
func (w *world) testPods() {
	for i, host := range []string{"host1", "host2", "host1", "host2"} {
		_, err := w.plug(w.newPod([]string{"web", "web", "shop", "shop"}[i], host))
		require.NoError(w.t, err)
	}
	w.awaitConnections(len(w.members))
	w.requireAll()
	var err error
	w.script, err = w.lab.StartScript(w.t.Context(), w.members[0])
	require.NoError(w.t, err)
	require.NoError(w.t, w.startScript()())
	w.unplugScripts()
	w.logMemory()
}

// fault takes a member out of the cluster. The function that begin returns brings it back.
type fault struct {
	name  string
	begin func(*world, *odl.Controller) (end func())
}

var faults = []fault{
	{"separated from the others for a minute", (*world).separate},
	{"frozen for a minute", (*world).freeze},
	{"killed, and started again", (*world).kill},
}

// separate separates a member from the others. Switches and the bridge reach it. OpenDaylight possibly programs no new port until it joins
// again, nor for some time after that: not even a port whose entries a script writes.
func (w *world) separate(c *odl.Controller) (end func()) {
	require.NoError(w.t, c.Separate(w.t.Context()))
	return w.inAMinute(func() error { return c.Join(w.t.Context()) })
}

// freeze freezes a member. Its connections stay open.
func (w *world) freeze(c *odl.Controller) (end func()) {
	require.NoError(w.t, c.Process().Stop())
	return w.inAMinute(c.Process().Cont)
}

// inAMinute calls end when a member has been away for long enough. The returned function waits for that.
func (w *world) inAMinute(end func() error) (await func()) {
	ended := make(chan error, 1)
	time.AfterFunc(awayFor, func() { ended <- end() })
	return func() { require.NoError(w.t, <-ended) }
}

// kill kills a member. The others do without it, until it is started again.
func (w *world) kill(c *odl.Controller) (end func()) {
	require.NoError(w.t, c.Kill())
	return func() {
		w.awaitConnections(len(w.members) - 1)
		w.requireAll()
		require.NoError(w.t, c.Start(w.t.Context()))
	}
}

// testFault tests a fault of a member. A pod comes and goes meanwhile, and a new one comes when the member is back. The packets of the
// other pods go on, and their entries are not written.
func (w *world) testFault(f fault, c *odl.Controller) {
	w.requireOnceForNew(func() {
		w.flow(longestGap, func() {
			end := f.begin(w, c)
			w.away = c
			w.plugBesideScript()
			w.unplugLast()
			end()
			w.away = nil
			w.plugBesideScript()
		})
		w.requireWhole()
		w.unplugLast()
		w.await("nothing of the pod is left", w.hasOnly)
	})
}

// testRestarted kills members, and starts them with their datastores. Two of three are a majority: the one that stays can do nothing
// without them.
func (w *world) testRestarted(members []*odl.Controller) {
	w.requireOnceForNew(func() {
		w.flow(longestGap, func() {
			require.NoError(w.t, odl.RestartCluster(w.t.Context(), members))
			w.requireNewPod()
			w.unplugLast()
		})
		w.requireWhole()
	})
}

// testSwitch restarts the switch of a host, and then its database. A new pod comes after each.
func (w *world) testSwitch() {
	host := w.lab.Host("host2")
	w.requireOnceForNew(func() {
		w.flow(longestGap, func() {
			require.NoError(w.t, host.VSwitchd.Restart(w.t.Context()))
			w.requireNewPod()
			w.unplugLast()
			require.NoError(w.t, host.OVSDB.Restart(w.t.Context()))
			w.requireNewPod()
			w.unplugLast()
		})
		w.requireWhole()
	})
}

// testWiped kills all members, and starts them without their datastores. The bridge writes its entries again, and the switches forget
// their flows.
func (w *world) testWiped() {
	w.requireOnce(func() {
		w.flow(gapWithoutData, func() {
			require.NoError(w.t, odl.WipeCluster(w.t.Context(), w.members))
			w.requireNewPod()
			w.unplugLast()
			w.requireWhole()
		})
	})
}

// testUnplugged unplugs and deletes all pods. The datastore has nothing of them.
func (w *world) testUnplugged() {
	w.requireOnce(func() {
		for _, p := range w.pods {
			w.unplug(p)
		}
		w.pods = nil
		w.await("the datastore is empty", w.hasOnly)
	})
}
