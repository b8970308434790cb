package codec

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A gateway drops packets of pinned pods whose addresses it does not translate: they would leave untranslated.
func TestPinnedOutsidePods(t *testing.T) {
	o := netvirt.Gateway{
		Node: netip.MustParseAddr("192.168.33.11"), Network: netip.MustParsePrefix("100.96.0.0/16"), Transit: "100:1", Chassis: "c1",
		Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Link: netip.MustParsePrefix("169.254.64.12/30"),
		Pods: "10.42.0.0/16", Pinned: "10.0.0.0/8,10.42.1.0/24,10.43.0.0/16", Inside: "10.42.0.0/16",
	}
	m := netvirt.Model{}
	m.Add(o)
	set := testCodec.Encode(o.Key(), m, func(k netvirt.Key) netvirt.Object { return m[k] })
	actions, hops := map[string]string{}, map[string][]string{}
	for _, r := range set.Rows {
		if p, ok := r.Value.(*nb.LogicalRouterPolicy); ok {
			role := p.ExternalIDs[IDRole]
			actions[role], hops[role] = p.Action, p.Nexthops
		}
	}
	require.Equal(t, map[string]string{
		"pinned/10.0.0.0/8": "drop", "pinned/10.42.1.0/24": "reroute", "pinned/10.43.0.0/16": "drop", "inside": "drop",
	}, actions)
	require.Equal(t, []string{"169.254.64.14"}, hops["pinned/10.42.1.0/24"])
	require.Empty(t, hops["pinned/10.43.0.0/16"])
}

// Traffic to some destinations leaves by the node of the pods, whatever gateway leads their other traffic: its policies
// have precedence, and match by equality only, so that further ranges multiply nothing. The policies of a node's own sources
// have the same precedence.
func TestOnNode(t *testing.T) {
	node, network := netip.MustParseAddr("192.168.33.11"), netip.MustParsePrefix("100.96.0.0/16")
	const elan = "192.168.33.11:default"
	subnet := netvirt.Subnet{ELAN: elan, VPN: "default", Prefix: netip.MustParsePrefix("10.42.1.0/24"), Gateway: netip.MustParseAddr("10.42.1.1")}
	m := netvirt.Model{}
	m.Add(
		netvirt.NodeNetwork{Prefix: network, Transit: netvirt.CommonRouteTarget, OnNode: "169.254.0.0/16,198.51.100.0/24"},
		netvirt.ManagementPort{Node: node, Network: network, Address: netip.MustParseAddr("100.96.0.2"), ServiceAddress: netip.MustParseAddr("100.96.0.3")},
		netvirt.VPNInstance{Name: "default", Namespace: "default", RouteDistinguisher: "100:2", Transit: netvirt.CommonRouteTarget},
		netvirt.ELANInstance{Name: elan}, subnet,
		netvirt.Gateway{Node: node, Network: network, Transit: netvirt.CommonRouteTarget, Pods: "10.42.0.0/16", Pinned: "10.42.0.0/16"},
	)
	type policy struct {
		priority      int
		match, action string
	}
	var all []policy
	for _, k := range []netvirt.Key{subnet.Key(), netvirt.GatewayKey(node), (netvirt.ManagementPort{Node: node}).Key()} {
		for _, r := range testCodec.Encode(k, netvirt.Model{k: m[k]}, func(k netvirt.Key) netvirt.Object { return m[k] }).Rows {
			if p, ok := r.Value.(*nb.LogicalRouterPolicy); ok {
				all = append(all, policy{p.Priority, p.Match, p.Action + strings.Join(p.Nexthops, ",")})
			}
		}
	}
	out := `outport == "router:nodes:way-out/100.96.0.0/16" && `
	require.ElementsMatch(t, []policy{
		{100, out + "ip4.src == 10.42.1.0/24", "reroute100.96.0.2"},
		{101, out + "ip4.src == 10.42.1.0/24", "drop"},
		{216, out + "ip4.src == 10.42.0.0/16", "drop"},
		{300, out + "ip4.src == 10.42.1.0/24 && ip4.dst == {169.254.0.0/16, 198.51.100.0/24}", "reroute100.96.0.2"},
		{300, out + "ip4.src == {100.96.0.3}", "reroute100.96.0.2"},
	}, all)
}
