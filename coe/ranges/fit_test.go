package ranges_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func pool(network, subnet string) dhcppool.Pool {
	return dhcppool.Pool{Network: network, Subnet: netip.MustParsePrefix(subnet)}
}

// TestSmallPools: a /16 has 8,192 blocks of /29, so 100 nodes with 82 namespaces may
// need more.
func TestSmallPools(t *testing.T) {
	const small = "the pools of network-id %q hold %d blocks of /%d; %d nodes with %d namespaces may need %d: pods get no address when the blocks are used up; give a larger pool"
	for name, c := range map[string]struct {
		pools             []dhcppool.Pool
		nodes, namespaces int
		want              []string
		nodeBlocks        bool
	}{
		"enough":         {[]dhcppool.Pool{pool("default", "10.0.0.0/16")}, 100, 81, nil, false},
		"too small":      {[]dhcppool.Pool{pool("default", "10.0.0.0/16")}, 100, 82, []string{fmt.Sprintf(small, "default", 8192, 29, 100, 82, 8200)}, false},
		"two together":   {[]dhcppool.Pool{pool("default", "10.0.0.0/16"), pool("default", "10.1.0.0/16")}, 100, 82, nil, false},
		"two families":   {[]dhcppool.Pool{pool("default", "10.0.0.0/16"), pool("default", "fd00::/64")}, 100, 82, []string{fmt.Sprintf(small, "default", 8192, 29, 100, 82, 8200)}, false},
		"of a node":      {[]dhcppool.Pool{pool("10.200.0.1", "10.0.0.0/24")}, 2, 33, []string{fmt.Sprintf(small, "10.200.0.1", 32, 29, 2, 33, 33)}, false},
		"of a namespace": {[]dhcppool.Pool{pool("ns1", "10.0.0.0/28")}, 3, 2, []string{fmt.Sprintf(small, "ns1", 2, 29, 3, 2, 3)}, false},
		"of services":    {[]dhcppool.Pool{pool("services", "10.0.0.0/29")}, 100, 100, nil, false},
		"of nodes": {[]dhcppool.Pool{pool("default", "10.0.0.0/26"), pool("10.200.0.1", "10.0.1.0/28")}, 9, 100, []string{
			`the pools of network-id "default" hold 8 blocks of /29; 9 nodes may need 9: pods get no address when the blocks are used up; give a larger pool`,
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := map[netip.Addr]*coe.Node{}
			for i := range c.nodes {
				nodes[netip.AddrFrom4([4]byte{10, 200, 0, byte(i + 1)})] = &coe.Node{}
			}
			var namespaces, got []string
			for i := range c.namespaces {
				namespaces = append(namespaces, fmt.Sprint("ns", i))
			}
			for _, p := range ranges.SmallPools(c.pools, ranges.Takers{Nodes: nodes, Namespaces: namespaces, NodeBlocks: c.nodeBlocks}) {
				require.Equal(t, coe.PoolSmall, p.Reason)
				got = append(got, p.Message)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestFit: a pool of a network serves its nodes and namespaces in turn.
func TestFit(t *testing.T) {
	nodes := map[netip.Addr]*coe.Node{netip.MustParseAddr("10.200.0.1"): {}, netip.MustParseAddr("10.200.0.2"): {}}
	for _, c := range []struct {
		network    string
		elan, node int64
	}{
		{"default", 32, 239},         // 2 nodes with 17 namespaces: one pod in each block; or 2 nodes with blocks for 119 pods, and one more
		{"ns3", 217, 239},            // on 2 nodes
		{"10.200.0.1", 93, 253},      // of a node: 17 namespaces with 5 pods, and 8 more; or whole
		{"10.200.0.9", 238, 250},     // of no node
		{"10.200.0.1:ns3", 253, 253}, // of an elan-instance: whole
	} {
		p := pool(c.network, "10.0.0.0/24")
		takers := ranges.Takers{Nodes: nodes}
		for i := range 17 {
			takers.Namespaces = append(takers.Namespaces, fmt.Sprint("ns", i))
		}
		require.Equal(t, c.elan, takers.Fit(p), c.network)
		takers.NodeBlocks = true
		require.Equal(t, c.node, takers.Fit(p), c.network)
	}
}
