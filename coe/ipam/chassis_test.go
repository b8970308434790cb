package ipam_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

// report puts the chassis of nodes, by their addresses; an empty name deletes it.
func (w *world) report(chassis map[string]string) {
	w.store.Update(func(tx *coe.Tx) {
		for a, name := range chassis {
			if tx.DeleteChassis(addr(a)); name != "" {
				tx.PutChassis(&coe.Chassis{Node: addr(a), Name: name})
			}
		}
	})
	w.syncNodes()
}

// chassis returns the chassis of nodes, by their addresses.
func (w *world) chassis() map[string]string {
	all := map[string]string{}
	for a, f := range w.store.Cluster().Numbers {
		if f.Chassis != "" {
			all[a.String()] = f.Chassis
		}
	}
	return all
}

// changed reports whether the agent of a node reports another chassis than the recorded one.
func (w *world) changed(address string) bool {
	return w.store.Cluster().Numbers[addr(address)].ChassisChanged
}

func (w *world) requireNameTaken(messages ...string) {
	w.Helper()
	var all []string
	for _, p := range w.store.Cluster().AddressProblems {
		require.Equal(w, coe.NameTaken, p.Reason)
		all = append(all, p.Message)
	}
	require.Len(w, all, len(messages))
	for i, m := range messages {
		require.Contains(w, all[i], m)
	}
}

// TestChassis: a chassis belongs to the first node that has reported it, also after a restart and if that node reports another one, until
// the report or the node is deleted.
func TestChassis(t *testing.T) {
	const first, second, third = "192.168.33.12", "192.168.33.13", "192.168.33.14"
	w := newWorld(t, specPool())
	w.complete()
	w.report(map[string]string{first: "a"}) // before the node is known
	w.putNodes(first, second, third)
	require.Equal(t, map[string]string{first: "a"}, w.chassis())

	w.report(map[string]string{second: "a", third: "c"})
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis())
	w.requireNameTaken(`its chassis "a" (external_ids:system-id of its Open vSwitch) is the chassis of node ` + first)

	w.restart()
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis(), "the records have it")
	w.syncNodes()
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis(), "what is not yet reported does not count as deleted")
	w.report(map[string]string{first: "a", second: "a", third: "c"})
	w.putNodes(first, second, third)
	w.complete()
	w.syncNodes()
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis())

	w.report(map[string]string{first: "d"})
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis(), "OVN can still have the node by this name, and no other node gets it")
	require.True(t, w.changed(first))
	require.Len(t, w.store.Cluster().AddressProblems, 2)
	require.Contains(t, w.store.Cluster().AddressProblems[0].Message, `its chassis "d" (external_ids:system-id of its Open vSwitch) was "a" before`)
	w.restart()
	require.True(t, w.changed(first), "the record has it")
	w.report(map[string]string{first: "e", second: "a", third: "c"})
	w.putNodes(first, second, third)
	w.complete()
	w.syncNodes()
	require.True(t, w.changed(first))
	w.report(map[string]string{first: "a"})
	require.False(t, w.changed(first), "it is the same again")
	require.Equal(t, map[string]string{first: "a", third: "c"}, w.chassis())

	w.report(map[string]string{first: ""})
	require.Equal(t, map[string]string{second: "a", third: "c"}, w.chassis(), "an operator has deleted the report")
	w.report(map[string]string{first: "d", second: "b"})
	require.Equal(t, map[string]string{first: "d", second: "a", third: "c"}, w.chassis())
	require.True(t, w.changed(second))
	w.report(map[string]string{second: ""})
	w.report(map[string]string{second: "b"})
	require.Equal(t, map[string]string{first: "d", second: "b", third: "c"}, w.chassis())
	require.False(t, w.changed(second))
	w.requireNameTaken()

	w.removeNode(second)
	w.report(map[string]string{third: ""})
	w.report(map[string]string{third: "b"})
	require.Equal(t, map[string]string{first: "d", third: "b"}, w.chassis(), "the report of a deleted node does not count")
}

// TestChassisWithTheNameOfANode: a captured node that reports the name of another node, as the guide sets the chassis, does not keep that
// node from its chassis, also if it was first.
func TestChassisWithTheNameOfANode(t *testing.T) {
	const captured, victim = "192.168.33.12", "192.168.33.13"
	w := newWorld(t, specPool())
	w.complete()
	put := func(address, name string) {
		w.store.Update(func(tx *coe.Tx) {
			tx.PutNode(coe.RESTCONF, &coe.Node{UID: address, HostName: name, InternalIP: addr(address)})
		})
		w.syncNodes()
	}
	put(captured, "worker-1")
	w.report(map[string]string{captured: "worker-2"})
	require.Equal(t, map[string]string{captured: "worker-2"}, w.chassis(), "no node is known by that name")
	put(victim, "worker-2")
	require.Empty(t, w.chassis())
	w.requireNameTaken(`its chassis "worker-2" (external_ids:system-id of its Open vSwitch) is the name of node worker-2`)
	w.report(map[string]string{victim: "worker-2"})
	require.Equal(t, map[string]string{victim: "worker-2"}, w.chassis())
	w.report(map[string]string{captured: "worker-1"})
	require.Equal(t, map[string]string{captured: "worker-1", victim: "worker-2"}, w.chassis())
	w.requireNameTaken()
	const stale = "192.168.33.99" // the victim's address before, which a client has not deleted
	put(stale, "worker-2")
	require.Equal(t, map[string]string{captured: "worker-1", victim: "worker-2"}, w.chassis())
	require.False(t, w.changed(victim))
}
