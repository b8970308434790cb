package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// TestSmallPools: a /16 has 8,192 blocks of /29, so 100 nodes with 82 namespaces may
// need more.
func TestSmallPools(t *testing.T) {
	const small = "the pools of network-id %q hold %d blocks of /%d; %d nodes with %d namespaces may need %d: pods get no address when the blocks are used up; give a larger pool"
	of := func(network, subnet string) dhcppool.Pool { return pool(network, subnet, "", "", "") }
	for name, c := range map[string]struct {
		pools             []dhcppool.Pool
		nodes, namespaces int
		want              []string
	}{
		"enough":         {[]dhcppool.Pool{of("default", "10.0.0.0/16")}, 100, 81, nil},
		"too small":      {[]dhcppool.Pool{of("default", "10.0.0.0/16")}, 100, 82, []string{fmt.Sprintf(small, "default", 8192, 29, 100, 82, 8200)}},
		"two together":   {[]dhcppool.Pool{of("default", "10.0.0.0/16"), of("default", "10.1.0.0/16")}, 100, 82, nil},
		"two families":   {[]dhcppool.Pool{of("default", "10.0.0.0/16"), of("default", "fd00::/64")}, 100, 82, []string{fmt.Sprintf(small, "default", 8192, 29, 100, 82, 8200)}},
		"of a node":      {[]dhcppool.Pool{of("10.200.0.1", "10.0.0.0/24")}, 2, 33, []string{fmt.Sprintf(small, "10.200.0.1", 32, 29, 2, 33, 33)}},
		"of a namespace": {[]dhcppool.Pool{of("ns1", "10.0.0.0/28")}, 3, 2, []string{fmt.Sprintf(small, "ns1", 2, 29, 3, 2, 3)}},
		"of services":    {[]dhcppool.Pool{of("services", "10.0.0.0/29")}, 100, 100, nil},
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
			for _, p := range ipam.SmallPools(c.pools, nodes, namespaces) {
				require.Equal(t, coe.PoolSmall, p.Reason)
				got = append(got, p.Message)
			}
			require.Equal(t, c.want, got)
		})
	}
}
