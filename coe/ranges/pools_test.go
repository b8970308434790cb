package ranges_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func TestNodePools(t *testing.T) {
	node := func(name string, cidrs ...string) *coe.Node {
		n := &coe.Node{UID: name, HostName: name}
		for _, c := range cidrs {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(c))
		}
		return n
	}
	posted := []dhcppool.Pool{{Network: "shop", Subnet: netip.MustParsePrefix("10.244.9.0/25")}}
	pools, problems := ranges.NodePools(map[netip.Addr]*coe.Node{
		netip.MustParseAddr("192.168.33.11"): node("a", "10.244.1.0/24", "fd00:1::/64"),
		netip.MustParseAddr("192.168.33.12"): node("b", "10.244.2.0/24"),
		netip.MustParseAddr("192.168.33.13"): node("c", "10.244.1.128/25"),
		netip.MustParseAddr("192.168.33.14"): node("d", "10.244.9.0/24"),
		netip.MustParseAddr("192.168.33.15"): node("e", "10.244.5.1/32"),
		netip.MustParseAddr("192.168.33.16"): node("f"),
	}, posted, nil)
	require.Equal(t, []dhcppool.Pool{
		{Network: "192.168.33.11", Subnet: netip.MustParsePrefix("10.244.1.0/24")},
		{Network: "192.168.33.12", Subnet: netip.MustParsePrefix("10.244.2.0/24")},
		{Network: "192.168.33.11", Subnet: netip.MustParsePrefix("fd00:1::/64")},
	}, pools)
	require.NoError(t, dhcppool.Validate(append(posted, pools...), true))
	said := map[string]string{}
	for _, p := range problems {
		require.Equal(t, coe.PoolOverlaps, p.Reason)
		said[p.Name] = p.Message
	}
	require.Len(t, said, 3)
	require.Contains(t, said["c"], "overlaps 10.244.1.0/24 of another node")
	require.Contains(t, said["d"], `overlaps pool 10.244.9.0/25 of network "shop"`)
	require.Contains(t, said["e"], "its pod-cidr 10.244.5.1/32 is not used as a pool")
}

func TestJoinPools(t *testing.T) {
	first := []dhcppool.Pool{pool("default", "10.11.0.0/16")}
	apart, over := pool("shop", "10.12.0.0/16"), pool("web", "10.11.3.0/24")
	pools, problems := ranges.JoinPools(first, []dhcppool.Pool{apart}, nil, true)
	require.Equal(t, []dhcppool.Pool{first[0], apart}, pools)
	require.Empty(t, problems)
	pools, problems = ranges.JoinPools(first, []dhcppool.Pool{over, apart}, nil, true)
	require.Equal(t, []dhcppool.Pool{first[0], apart}, pools, "a pool that overlaps a pool of the settings serves no pod")
	require.Len(t, problems, 1)
	require.Equal(t, coe.PoolOverlaps, problems[0].Reason)
	require.Contains(t, problems[0].Message, "10.11.3.0/24")
}
