package agent

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// TestRoutesByNode: pods of a node that leads them to services have a default route by the node, and routes to pods and nodes by
// the gateway. A pod of an isolated namespace has one to its node and, if that leads to services, by it to these.
func TestRoutesByNode(t *testing.T) {
	prefix, address := netip.MustParsePrefix, netip.MustParseAddr
	given := []links.Route{{Destination: everywhere4, Gateway: address("10.42.0.17")}, {Destination: prefix("192.0.2.0/24"), Gateway: address("10.42.0.18")}}
	own := []uplink.Address{{IP: address("10.42.0.19"), Length: 29, Gateway: address("10.42.0.17")}}
	place := &uplink.Place{
		Address: address("100.96.0.2"), Length: 16, MAC: "0a:58:64:60:00:02", Pods: []netip.Prefix{prefix("10.42.0.0/16"), prefix("fd00::/64")},
		WayOut: &uplink.WayOut{MAC: "0a:58:c0:a8:21:0b"},
	}
	routes, neighbours := byNode(given, place, true, own)
	require.Equal(t, []links.Route{
		{Destination: prefix("100.96.0.2/32")},
		{Destination: prefix("10.42.0.0/16"), Gateway: address("10.42.0.17")},
		{Destination: prefix("100.96.0.0/16"), Gateway: address("10.42.0.17")},
		{Destination: everywhere4, Gateway: address("100.96.0.2")},
		given[1],
	}, routes)
	require.Equal(t, []links.Neighbour{{Address: place.Address, MAC: place.WayOut.MAC}}, neighbours)

	isolated := &uplink.Place{Isolated: true, Address: address("192.168.33.11"), MAC: "0a:58:c0:a8:21:0b"}
	routes, neighbours = byNode(given, isolated, true, own)
	require.Equal(t, append([]links.Route{{Destination: prefix("192.168.33.11/32")}}, given...), routes)
	require.Equal(t, []links.Neighbour{{Address: isolated.Address, MAC: isolated.MAC}}, neighbours)

	leading := *isolated
	leading.WayOut, leading.Services = &uplink.WayOut{MAC: isolated.MAC}, []netip.Prefix{prefix("10.96.0.0/12"), prefix("fd00:10::/108")}
	routes, neighbours = byNode(given, &leading, true, own)
	toServices := []links.Route{{Destination: prefix("192.168.33.11/32")}, {Destination: prefix("10.96.0.0/12"), Gateway: isolated.Address}}
	require.Equal(t, append(toServices, given...), routes)
	require.Equal(t, []links.Neighbour{{Address: isolated.Address, MAC: isolated.MAC}}, neighbours)

	for _, p := range []*uplink.Place{place, isolated} {
		routes, neighbours = byNode(given[1:], p, true, own)
		require.Equal(t, given[1:], routes, "a further link of a pod")
		require.Empty(t, neighbours)
	}
	require.Empty(t, podRanges(place, true))

	for _, p := range []*uplink.Place{nil, isolated} {
		routes, neighbours = byNode(given, p, false, own)
		require.Equal(t, given, routes, "OVN routes to nodes")
		require.Empty(t, neighbours)
	}
}
