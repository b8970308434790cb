package remote

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/status"
)

// The prefixes of a family have the address of the node of this family as next hop. Without one they are not shown.
func TestRoutesOfBothFamilies(t *testing.T) {
	var (
		both   = netip.MustParseAddr("192.168.33.12")
		only4  = netip.MustParseAddr("192.168.33.13")
		first6 = netip.MustParseAddr("2001:db8::14")
		alone6 = netip.MustParseAddr("2001:db8::15")
		second = netip.MustParseAddr("2001:db8::12")
		own6   = netip.MustParseAddr("fd00:96::2")
	)
	lease := func(node netip.Addr, networks ...string) status.Lease {
		l := status.Lease{Node: node}
		for _, n := range networks {
			p := netip.MustParsePrefix(n)
			l.Addresses, l.Networks = append(l.Addresses, p.Addr()), append(l.Networks, p.Masked())
		}
		return l
	}
	ofPool := lease(both, "10.11.2.9/29", "fd42::9/125")
	ofNone := lease(both, "10.11.2.17/29", "fd43::7/128")
	ofNone.Networks[1] = netip.MustParsePrefix("fe80::1/128") // of the gateway
	routes, err := routesOf([]managementPort{
		{Node: first6, Second: netip.MustParseAddr("192.168.33.14"), IPv6: own6, Chassis: "worker-3"},
		{Node: both, Second: second, IPv6: own6, Chassis: "worker-1"},
		{Node: only4, IPv6: own6, Chassis: "worker-2"},
		{Node: alone6, Chassis: "worker-4"},
	}, []status.Lease{ofPool, ofNone, lease(only4, "10.11.2.33/29", "fd42::21/125"), lease(first6, "fd42::31/125"), lease(alone6, "10.11.2.41/29")})
	require.NoError(t, err)
	prefixes := func(texts ...string) []netip.Prefix {
		all := []netip.Prefix{}
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	require.Equal(t, []nodeRoutes{
		{"worker-1", both, prefixes("10.11.2.8/29", "10.11.2.16/29")},
		{"worker-1", second, prefixes("fd42::8/125", "fd43::7/128")},
		{"worker-2", only4, prefixes("10.11.2.32/29")},
		{"worker-3", netip.MustParseAddr("192.168.33.14"), prefixes()},
		{"worker-3", first6, prefixes("fd42::30/125")},
	}, routes)
}
