package ipam_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// report puts the chassis of nodes, by their addresses; an empty name deletes it.
func (w *world) report(chassis map[string]string) {
	w.store.Update(func(tx *state.Tx) {
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
	w.requireNameTaken(`its chassis "a" (its name in OVN) is the chassis of node ` + first)

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
	require.Contains(t, w.store.Cluster().AddressProblems[0].Message, `its chassis "d" (its name in OVN) was "a" before`)
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

// TestChassisInOVN: a node that OVN has by another name keeps its chassis and is marked, as long as OVN does not have that chassis. An unknown list
// of chassis changes nothing, also after a restart.
func TestChassisInOVN(t *testing.T) {
	const first, second = "192.168.33.12", "192.168.33.13"
	w := newWorld(t, specPool())
	w.complete()
	put := func() {
		w.store.Update(func(tx *state.Tx) {
			for _, a := range []string{first, second} {
				tx.PutNode(coe.RESTCONF, &coe.Node{UID: a, HostName: "host " + a, InternalIP: addr(a)})
			}
		})
		w.syncNodes()
	}
	put()
	name := func(address string) string { return "host " + address }
	inOVN := func(hosts map[string]string) {
		w.store.Update(func(tx *state.Tx) { tx.SetChassisOfOVN(hosts) })
		w.syncNodes()
	}
	problems := func() []coe.Problem { return w.store.Cluster().AddressProblems }
	reports := map[string]string{first: "a", second: "b"}
	w.report(reports)
	for _, hosts := range []map[string]string{
		nil,
		{},
		{"a": name(first), "b": name(second)},
		{"a": "", "b": "", "c": name(first)}, // the node has two, and OVN has not forgotten one
		{"c": ""},
		{"b": name(first)}, // it is of the other node
	} {
		inOVN(hosts)
		require.Equal(t, []bool{false, false}, []bool{w.changed(first), w.changed(second)}, hosts)
		require.Empty(t, problems())
	}
	other := map[string]string{"b": name(second), "c": name(first), "d": name(first)}
	inOVN(other)
	require.Equal(t, []bool{true, false}, []bool{w.changed(first), w.changed(second)})
	require.Equal(t, map[string]string{first: "a", second: "b"}, w.chassis())
	require.Len(t, problems(), 1)
	require.Equal(t, coe.NotEnforced, problems()[0].Reason)
	require.Contains(t, problems()[0].Message, `its chassis "a" (its name in OVN) is not in OVN, which has the node by the name "c"`)

	w.restart()
	w.store.Update(func(tx *state.Tx) { tx.SetChassisOfOVN(nil) })
	put()
	w.report(reports)
	w.complete()
	w.syncNodes()
	require.True(t, w.changed(first), "OVN was not read since")
	inOVN(other)
	require.True(t, w.changed(first))
	inOVN(map[string]string{"a": name(first), "b": name(second)})
	require.False(t, w.changed(first))
	require.Empty(t, problems())

	inOVN(other)
	w.report(map[string]string{first: ""})
	w.report(map[string]string{first: "c"})
	require.Equal(t, map[string]string{first: "c", second: "b"}, w.chassis())
	require.False(t, w.changed(first))
	require.Empty(t, problems())
}

// TestReportsOfDeletedNodes: when a node is deleted, its report must be too. The record of the node stays until then, so that a new leader
// asks again. Reports of nodes that were never known stay.
func TestReportsOfDeletedNodes(t *testing.T) {
	const gone, kept, unknown = "192.168.33.12", "192.168.33.13", "192.168.33.14"
	w := newWorld(t, specPool())
	var asked []string
	w.forget = func(node netip.Addr) { asked = append(asked, node.String()) }
	w.restart()
	reports := map[string]string{gone: "a", kept: "b", unknown: "c"}
	w.putNodes(gone, kept)
	w.report(reports)
	w.removeNode(gone)
	require.Empty(t, asked, "not every source was listed")
	require.Equal(t, map[string]string{gone: "a", kept: "b"}, w.chassis())
	w.complete()
	w.syncNodes()
	require.Equal(t, []string{gone}, asked)
	w.report(map[string]string{unknown: "a"})
	w.putNodes(unknown)
	require.Equal(t, map[string]string{gone: "a", kept: "b", unknown: "a"}, w.chassis(), "the deleted node does not hold its chassis")
	w.removeNode(unknown)

	asked = nil
	w.restart()
	w.report(reports)
	w.putNodes(kept)
	require.Empty(t, asked)
	w.complete()
	w.syncNodes()
	require.ElementsMatch(t, []string{gone, unknown}, asked)
	w.report(map[string]string{gone: "", unknown: ""})
	require.Equal(t, map[string]string{kept: "b"}, w.chassis())
	require.Equal(t, map[string]uint32{kept: 0}, w.numbers())
}

// TestChassisWithTheNameOfANode: a captured node that reports the name of another node, as the guide sets the chassis, does not keep that
// node from its chassis, also if it was first.
func TestChassisWithTheNameOfANode(t *testing.T) {
	const captured, victim = "192.168.33.12", "192.168.33.13"
	w := newWorld(t, specPool())
	w.complete()
	put := func(address, name string) {
		w.store.Update(func(tx *state.Tx) {
			tx.PutNode(coe.RESTCONF, &coe.Node{UID: address, HostName: name, InternalIP: addr(address)})
		})
		w.syncNodes()
	}
	put(captured, "worker-1")
	w.report(map[string]string{captured: "worker-2"})
	require.Equal(t, map[string]string{captured: "worker-2"}, w.chassis(), "no node is known by that name")
	put(victim, "worker-2")
	require.Empty(t, w.chassis())
	w.requireNameTaken(`its chassis "worker-2" (its name in OVN) is the name of node worker-2`)
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
