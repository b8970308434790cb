package ipam_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func (w *world) putNodes(addresses ...string) {
	w.store.Update(func(tx *state.Tx) {
		for _, a := range addresses {
			tx.PutNode(coe.RESTCONF, &coe.Node{UID: a, InternalIP: addr(a)})
		}
	})
	w.syncNodes()
}

func (w *world) removeNode(address string) {
	w.store.Update(func(tx *state.Tx) { tx.DeleteNode(coe.RESTCONF, address) })
	w.syncNodes()
}

// syncNodes calls Sync without namespaces, which updates the nodes.
func (w *world) syncNodes() {
	w.Helper()
	_, _, err := w.assigner.Sync(w.Context(), nil)
	require.NoError(w, err)
}

// numbers returns the numbers of the nodes, by their addresses.
func (w *world) numbers() map[string]uint32 {
	all := map[string]uint32{}
	for a, f := range w.store.Cluster().Numbers {
		all[a.String()] = f.Number
	}
	return all
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// TestNodesHaveNumbers: a node keeps its number until it is deleted, also after a restart.
func TestNodesHaveNumbers(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/28")} // for four nodes
	w.restart()
	w.complete()
	w.putNodes("192.168.33.12", "192.168.33.13", "fd00::1")
	want := map[string]uint32{"192.168.33.12": 1, "192.168.33.13": 2, "fd00::1": 3}
	require.Equal(t, want, w.numbers())

	w.restart()
	require.Equal(t, want, w.numbers())
	w.syncNodes()
	require.Equal(t, want, w.numbers(), "a node that is not yet reported does not count as deleted")
	w.putNodes("192.168.33.13", "192.168.33.14")
	w.complete()
	w.syncNodes()
	require.Equal(t, map[string]uint32{"192.168.33.13": 2, "192.168.33.14": 4}, w.numbers())

	w.putNodes("192.168.33.15", "192.168.33.16", "192.168.33.17")
	require.Len(t, w.numbers(), 4, "the network is full")
	w.removeNode("192.168.33.13")
	w.syncNodes()
	require.Equal(t, uint32(2), w.numbers()["192.168.33.17"], "the first free number")

	w.nodePorts = true
	w.restart()
	w.complete()
	w.putNodes("192.168.33.12", "192.168.33.13", "192.168.33.14", "192.168.33.15", "192.168.33.16")
	require.Len(t, w.numbers(), 5, "isolated namespaces have ports on a node without a number too")

	w.nodes, w.nodePorts = nodenet.Range{}, false
	w.restart()
	w.complete()
	w.syncNodes()
	require.Empty(t, w.numbers())
	require.Nil(t, w.store.Cluster().Networks)
	require.Empty(t, w.journal.records)
}

// TestNumbersOfTwoAddresses: nodes keep numbers of a release that gave a node two addresses, which are
// more than fit now. No further node gets such a number.
func TestNumbersOfTwoAddresses(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/28")}
	w.journal.records["node/192.168.33.12"] = []byte(`{"node":"192.168.33.12","number":6}`)
	w.journal.records["node/192.168.33.13"] = []byte(`{"node":"192.168.33.13","number":7}`) // of a larger network
	w.restart()
	w.complete()
	w.putNodes("192.168.33.12", "192.168.33.13", "192.168.33.14")
	require.Equal(t, map[string]uint32{"192.168.33.12": 6, "192.168.33.13": 1, "192.168.33.14": 2}, w.numbers())
	w.removeNode("192.168.33.12")
	w.putNodes("192.168.33.15", "192.168.33.16", "192.168.33.17")
	require.Equal(t, map[string]uint32{"192.168.33.13": 1, "192.168.33.14": 2, "192.168.33.15": 3, "192.168.33.16": 4}, w.numbers())
}

// TestNetworks: the networks that nodes route follow from the pools and the settings. No
// network is removed before all pools are known.
func TestNetworks(t *testing.T) {
	services := dhcppool.Pool{Network: coe.ServicePool, Subnet: netip.MustParsePrefix("172.30.0.0/16")}
	low := dhcppool.Pool{Network: "default", Subnet: netip.MustParsePrefix("10.42.0.0/24")}
	high := dhcppool.Pool{Network: "web", Subnet: netip.MustParsePrefix("10.42.1.0/24")}
	w := newWorld(t, low, high, services)
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	w.noMasquerade = prefixes("192.0.2.128/25", "192.0.2.0/25")
	w.restart()
	w.syncNodes()
	whole := coe.Networks{Nodes: w.nodes, Pods: prefixes("10.42.0.0/23"), Services: prefixes("10.96.0.0/12", "172.30.0.0/16"), NoMasquerade: prefixes("192.0.2.0/24")}
	require.Equal(t, whole, *w.store.Cluster().Networks)

	w.pools = nil
	w.restart()
	w.setPools(low)
	w.syncNodes()
	require.Equal(t, whole, *w.store.Cluster().Networks)
	w.assigner.PoolsAreWhole()
	w.syncNodes()
	whole.Pods, whole.Services = prefixes("10.42.0.0/24"), prefixes("10.96.0.0/12")
	require.Equal(t, whole, *w.store.Cluster().Networks)
	commits := w.journal.commits
	w.syncNodes()
	require.Equal(t, commits, w.journal.commits, "nothing has changed")
}

// TestNumbersAfterALostJournal: after the journal is lost, nodes keep the numbers that they
// have in the backend, in whatever order they are reported. No number is given before the
// backend has answered.
// Nodes route the ranges of ServiceCIDRs and of the settings. No range ends before all ServiceCIDRs are known.
func TestNetworksOfServiceCIDRs(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	w.restart()
	w.complete()
	set := func(whole bool, ranges ...string) []netip.Prefix {
		w.assigner.SetServiceRanges(prefixes(ranges...), whole)
		w.assigner.SetPools([]dhcppool.Pool{specPool()})
		w.assigner.PoolsAreWhole()
		w.syncNodes()
		return w.store.Cluster().Networks.Services
	}
	require.Equal(t, prefixes("10.96.0.0/12", "10.160.0.0/16", "10.170.0.0/16"), set(true, "10.170.0.0/16", "10.160.0.0/16"))
	require.Equal(t, prefixes("10.96.0.0/12", "10.160.0.0/16", "10.170.0.0/16"), set(false))
	require.Equal(t, prefixes("10.96.0.0/12", "10.160.0.0/16"), set(true, "10.160.0.0/16"))
	require.Equal(t, coe.AddressTaken, w.assigner.RefuseEgress(addr("10.160.1.1")).Reason)
	require.Nil(t, w.assigner.RefuseEgress(addr("10.170.1.1")))
}

func TestNumbersAfterALostJournal(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/28")}
	port := func(node, address string) inuse.Node {
		return inuse.Node{Node: addr(node), Address: addr(address)}
	}
	w.ports = []inuse.Node{
		port("192.168.33.19", "100.96.0.2"),  // a deleted node
		port("192.168.33.13", "100.96.0.4"),  // the later of two
		port("192.168.33.12", "100.96.0.4"),  //
		port("192.168.33.14", "100.96.0.3"),  // not a number of one node
		port("192.168.33.15", "100.97.0.10"), // of another network
	}
	away := errors.New("connection refused")
	w.inUse = func() ([]inuse.Interface, error) { return nil, away }
	w.loseJournal()
	w.putNodes("192.168.33.13")
	require.Empty(t, w.numbers(), "the backend has not been asked yet")
	w.put(newPod("a", "192.168.33.13"))
	require.ErrorIs(t, w.trySync(), away)
	require.Empty(t, w.numbers())

	away = nil
	require.NoError(t, w.trySync())
	require.Equal(t, map[string]uint32{"192.168.33.12": 2, "192.168.33.13": 3, "192.168.33.19": 1}, w.numbers())
	w.putNodes("192.168.33.12", "192.168.33.14")
	w.complete()
	w.syncNodes()
	require.Equal(t, map[string]uint32{"192.168.33.12": 2, "192.168.33.13": 3, "192.168.33.14": 4}, w.numbers())
	want := w.numbers()
	w.restart()
	require.Equal(t, want, w.numbers())
}

// TestNetworksOfIsolatedNamespaces: nodes keep their ports in isolated namespaces after a restart, also if
// namespaces were not isolated before.
func TestNetworksOfIsolatedNamespaces(t *testing.T) {
	w := newWorld(t, specPool())
	w.nodes = nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/28")}
	w.restart()
	w.complete()
	w.putNodes("192.168.33.12")
	w.nodes, w.isolated, w.nodePorts = nodenet.Range{}, true, true
	for range 3 {
		w.restart()
		w.complete()
		w.putNodes("192.168.33.12")
		w.syncNodes()
		require.True(t, w.store.Cluster().Networks.Isolated)
		require.Contains(t, string(w.journal.records["networks/"]), `"isolated":true`)
	}
}
