package bridge

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/backend/memory"
)

// withNodePools is a standby with nodes that have pools.
func withNodePools(nodes int) *Bridge {
	b := &Bridge{log: slog.New(slog.DiscardHandler), cfg: Config{NodePools: true}}
	b.store = state.NewStore(func(state.Changed) {}, coe.RESTCONF)
	b.role.Store(&role{side: side{backend: inMemory{memory.New()}}})
	b.putNodes(0, nodes)
	return b
}

func (b *Bridge) putNodes(from, to int) {
	b.store.Update(func(tx *state.Tx) {
		for n := from; n < to; n++ {
			tx.PutNode(coe.RESTCONF, &coe.Node{
				UID: fmt.Sprint(n), HostName: fmt.Sprintf("node-%d", n), InternalIP: nodeAt(n),
				PodCIDRs: []netip.Prefix{netip.PrefixFrom(podAt(n), 24).Masked()},
			})
		}
	})
}

func nodeAt(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}) }
func podAt(n int) netip.Addr  { return netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 9}) }

// TestRequestableFollowsPools: what an agent may request follows the nodes, the posted pools, and
// which of the pools serves its pod.
func TestRequestableFollowsPools(t *testing.T) {
	b := withNodePools(2)
	require.True(t, b.requestable(nodeAt(1), "web", podAt(1)))
	require.False(t, b.requestable(nodeAt(1), "web", podAt(0)))
	require.False(t, b.requestable(nodeAt(2), "web", podAt(2)))
	b.putNodes(2, 3)
	require.True(t, b.requestable(nodeAt(2), "web", podAt(2)))

	b.setPosted([]dhcppool.Pool{{Network: "web", Subnet: netip.MustParsePrefix("172.20.0.0/24")}})
	require.True(t, b.requestable(nodeAt(2), "web", netip.MustParseAddr("172.20.0.9")))
	require.False(t, b.requestable(nodeAt(2), "web", podAt(2)), "the pool of the namespace comes first")
	b.setPosted(nil)
	require.True(t, b.requestable(nodeAt(2), "web", podAt(2)))
	require.False(t, b.requestable(nodeAt(2), "web", netip.MustParseAddr("172.20.0.9")))
}

// BenchmarkRequestable is the check of an address that the agent of one of 1,000 nodes requests.
func BenchmarkRequestable(b *testing.B) {
	bridge := withNodePools(1000)
	for n := range b.N {
		require.True(b, bridge.requestable(nodeAt(n%1000), "web", podAt(n%1000)))
	}
}
