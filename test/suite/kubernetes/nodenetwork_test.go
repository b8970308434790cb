package kubernetes

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// TestNodeNetwork starts bridges one after the other, with the same datastore. They join the
// nodes by one network, by another, or not at all.
func TestNodeNetwork(t *testing.T) {
	t.Parallel()
	const nodes = 8
	w := newWorld(t, kubetest.Config{}, nodes, 2)
	_, err := w.MakePods(t.Context(), kubetest.PodLoad{Count: 32, Namespaces: 2, Nodes: nodes})
	require.NoError(t, err)
	_, err = w.MakeServices(t.Context(), kubetest.ServiceLoad{Count: 4, Endpoints: 3, Namespaces: 2})
	require.NoError(t, err)
	dir := t.TempDir()
	serve := func(network netip.Prefix) running {
		w.network = network
		b := w.serve(t, withDir(dir), neverReuse)
		w.awaitExact(t, b, converge)
		return b
	}

	off := serve(netip.Prefix{})
	require.Empty(t, w.agents.Places())
	without := w.lines(t)
	off.Stop()

	t.Run("full", func(t *testing.T) { testFullNetwork(t, w, serve(netip.MustParsePrefix("100.98.0.0/28")), nodes) })
	on := serve(nodeNetwork)
	require.Len(t, w.agents.Places(), nodes)
	with := w.lines(t)
	require.Subset(t, with, without)
	on.Restart()
	w.awaitExact(t, on, converge)
	require.ElementsMatch(t, with, w.lines(t), "nodes keep their places")
	on.Stop()

	serve(netip.MustParsePrefix("100.97.128.0/17")).Stop()
	off = serve(netip.Prefix{})
	require.ElementsMatch(t, without, w.lines(t), "no row of the node network is left")
	off.Stop()
	on = serve(nodeNetwork)
	require.Len(t, w.lines(t), len(with))
	on.Stop()
}

// testFullNetwork has more nodes than the network has addresses for, and then deletes nodes with a place
// until each has one.
func testFullNetwork(t *testing.T, w *world, b running, nodes int) {
	most := joined{network: w.network}.size()
	require.Less(t, most, nodes)
	waiting := b.unplaced()
	require.Len(t, waiting, nodes-most)
	require.Contains(t, b.problem(waiting[0]).Message, "set a larger --node-network")
	b.Restart()
	w.awaitExact(t, b, converge)
	require.Equal(t, waiting, b.unplaced(), "no node loses its place to another node")
	var removed []int
	for n := range nodes {
		if len(removed) < nodes-most && !slices.Contains(waiting, kubetest.Node(n)) {
			removed = append(removed, n)
			w.removeNodes(t, n, n+1)
			w.awaitExact(t, b, converge)
		}
	}
	require.Empty(t, b.unplaced(), "a waiting node gets a free place")
	var again []string
	for _, n := range removed {
		again = append(again, kubetest.Node(n))
		w.makeNodes(t, n, n+1)
	}
	w.awaitExact(t, b, converge)
	require.Equal(t, again, b.unplaced())
	b.Stop()
}

// unplaced returns the nodes that have no place according to the status, sorted.
func (r running) unplaced() (names []string) {
	for _, p := range r.status().Problems {
		if p.Kind == "node" && p.Reason == "IDsExhausted" {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
