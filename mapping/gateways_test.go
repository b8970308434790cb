package mapping_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// A gateway whose node has no management port keeps its pinned pods inside. Addresses that nodes and pools have taken do
// not remove it.
func TestGateways(t *testing.T) {
	other := netip.MustParseAddr("192.168.33.13")
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	view := func(change func(*coe.ClusterView, *coe.Gateway)) coe.ClusterView {
		g := &coe.Gateway{
			Node: synth.Node1, Chassis: "c1", Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"),
			Pinned: prefixes("10.42.1.0/24"),
		}
		v := coe.ClusterView{
			Nodes:   map[netip.Addr]*coe.Node{synth.Node1: {HostName: "node1"}, other: {HostName: "node2"}},
			Numbers: map[netip.Addr]*coe.NodeFact{synth.Node1: {Node: synth.Node1, Number: 3}},
			Networks: &coe.Networks{
				Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")},
				Pods:  prefixes("10.42.0.0/16", "fd00:42::/48"), Services: prefixes("10.96.0.0/12"),
			},
			Gateways: []*coe.Gateway{g},
		}
		change(&v, g)
		return v
	}
	s := settings
	s.ManagementPorts, s.External = true, "198.51.100.0/24"
	m := cluster(t, view(func(*coe.ClusterView, *coe.Gateway) {}), s)
	whole := netvirt.Gateway{
		Node: synth.Node1, Network: netip.MustParsePrefix("100.96.0.0/16"), Transit: "100:1", Chassis: "c1",
		Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Link: netip.MustParsePrefix("169.254.192.12/30"),
		Pods: "10.42.0.0/16", Pinned: "10.42.1.0/24", Inside: "10.42.0.0/16,10.96.0.0/12,100.96.0.0/16,169.254.192.0/18",
	}
	onNode := func(m netvirt.Model) netvirt.PrefixList {
		return m[netvirt.NodeNetwork{Prefix: whole.Network}.Key()].(netvirt.NodeNetwork).OnNode
	}
	require.Equal(t, whole, m[whole.Key()])
	require.Equal(t, netvirt.PrefixList("169.254.0.0/16,198.51.100.0/24"), onNode(m))
	require.Empty(t, onNode(cluster(t, view(func(v *coe.ClusterView, _ *coe.Gateway) { v.Gateways = nil }), s)))
	require.Equal(t, "169.254.192.13/30", whole.Families()[0].TransitAddress().String())
	require.Equal(t, "169.254.192.14/30", whole.Families()[0].LinkAddress().String())

	serving := whole
	serving.Services, serving.External, serving.Nodes = true, "198.51.100.0/24", netvirt.PrefixList(synth.Node1.String()+"/32")
	serving.Own, serving.SourcePorts = serving.Nodes, "1024-65535"
	m = cluster(t, view(func(_ *coe.ClusterView, g *coe.Gateway) { g.Services = true }), s)
	require.Equal(t, serving, m[whole.Key()], "only nodes with a management port are reached inside")
	ports := s
	ports.NodePorts = coe.PortRange{First: 30000, Last: 32767}
	m = cluster(t, view(func(_ *coe.ClusterView, g *coe.Gateway) { g.Services = true }), ports)
	require.Equal(t, "32768-65535", m[whole.Key()].(netvirt.Gateway).SourcePorts, "no node ports")
	for number := range uint32(1 << 12) {
		link, ok := nodenet.GatewayLink(nodenet.GatewayLinks, number)
		require.True(t, ok && !link.Overlaps(nodenet.EgressWays))
		link, ok = nodenet.GatewayLink(nodenet.GatewayLinksIPv6, number)
		require.True(t, ok && nodenet.GatewayLinksIPv6.Contains(link.Addr()) && !link.Overlaps(nodenet.NodesIsolatedIPv6))
	}
	for number := range uint16(netvirt.MaxEgressIPs + 1) {
		require.False(t, netvirt.EgressLink(number).Overlaps(nodenet.GatewayLinks), "both are ports of one router")
	}

	for says, one := range map[string]struct {
		reason coe.Reason
		works  bool
		change func(*coe.ClusterView, *coe.Gateway)
	}{
		"knows no node with address 192.168.33.13": {coe.Waiting, false, func(_ *coe.ClusterView, g *coe.Gateway) { g.Node = other }},
		"the number of the node is 4096": {coe.IDsExhausted, false, func(v *coe.ClusterView, _ *coe.Gateway) {
			v.Numbers[synth.Node1] = &coe.NodeFact{Node: synth.Node1, Number: 4096}
		}},
		"192.168.33.13 is also the address of node node2": {coe.AddressTaken, true, func(_ *coe.ClusterView, g *coe.Gateway) {
			g.Address = netip.PrefixFrom(other, 24)
		}},
		"10.33.74.138 is also the address of egressip shop": {coe.AddressTaken, true, func(v *coe.ClusterView, g *coe.Gateway) {
			v.EgressIPs = []*coe.EgressIP{{Name: "shop", Number: 1, Address: g.Address.Addr()}}
		}},
		"the next hop 10.33.74.253 is also the address of egressip shop": {coe.AddressTaken, true, func(v *coe.ClusterView, g *coe.Gateway) {
			v.EgressIPs = []*coe.EgressIP{{Name: "shop", Number: 1, Address: g.NextHop}}
		}},
		"overlaps 10.42.0.0/16": {coe.AddressInvalid, true, func(_ *coe.ClusterView, g *coe.Gateway) {
			g.Address = netip.MustParsePrefix("10.42.74.138/24")
		}},
		"10.43.0.0/16 is not in a range of pods": {coe.AddressInvalid, true, func(_ *coe.ClusterView, g *coe.Gateway) {
			g.Pinned = append(g.Pinned, netip.MustParsePrefix("10.43.0.0/16"))
		}},
	} {
		v := view(one.change)
		m, problems := mapping.Cluster(v, s)
		require.Len(t, problems, 1, says)
		require.Equal(t, "gateway", problems[0].Kind)
		require.Equal(t, one.reason, problems[0].Reason)
		require.Contains(t, problems[0].Message, says)
		o := m[netvirt.GatewayKey(v.Gateways[0].Node)].(netvirt.Gateway)
		require.Equal(t, one.works, o.Link.IsValid(), says)
		require.Contains(t, o.Pinned, "10.42.1.0/24")
		require.Equal(t, netvirt.PrefixList("10.42.0.0/16"), o.Pods, "the pods of the node leave by no other way")
	}
	// Ranges that could have every address, together or alone, and those with machines of the network outside.
	for _, external := range prefixes("0.0.0.0/1", "128.0.0.0/1", "10.33.74.128/25", "10.33.74.240/28", "10.33.0.0/16", "10.33.74.0/24") {
		s := s
		s.External = netvirt.NewPrefixList(external, netip.MustParsePrefix("198.51.100.0/24"))
		m, problems := mapping.Cluster(view(func(*coe.ClusterView, *coe.Gateway) {}), s)
		require.Len(t, problems, 1)
		require.Equal(t, coe.AddressInvalid, problems[0].Reason)
		require.Contains(t, problems[0].Message, external.String()+" of --external-addresses")
		require.Equal(t, whole, m[whole.Key()])
		require.Equal(t, netvirt.PrefixList("169.254.0.0/16,198.51.100.0/24"), onNode(m), "the range is left out")
	}
	inside := s
	inside.External = "10.33.74.192/27"
	require.Equal(t, netvirt.PrefixList("10.33.74.192/27,169.254.0.0/16"), onNode(cluster(t, view(func(*coe.ClusterView, *coe.Gateway) {}), inside)))

	testGatewaysIPv6(t, whole, view, s)
	for _, unknown := range []bool{false, true} { // the entry cannot be read, which is a problem of its own
		v := view(func(v *coe.ClusterView, g *coe.Gateway) {
			v.Gateways[0] = &coe.Gateway{Node: g.Node, Pinned: g.Pinned, Unreadable: true, PinsUnknown: unknown}
		})
		closed := netvirt.Gateway{Node: synth.Node1, Network: whole.Network, Transit: whole.Transit, Pods: whole.Pods, Pinned: whole.Pinned}
		if unknown {
			closed.Pinned = closed.Pods
		}
		require.Equal(t, closed, cluster(t, v, s)[whole.Key()])
	}
	for _, s := range []mapping.Settings{
		{Isolation: mapping.IsolationNamespace, ManagementPorts: true}, {Limits: netvirt.Limits{NoGateways: true}, ManagementPorts: true}, {},
	} {
		m, problems := mapping.Cluster(view(func(*coe.ClusterView, *coe.Gateway) {}), s)
		require.Len(t, problems, 1)
		require.Equal(t, coe.NotEnforced, problems[0].Reason)
		require.Empty(t, m.Select(netvirt.NewKindSet(netvirt.KindGateway)))
	}
}

// A gateway with an IPv6 address has both families, if nodes have IPv6 addresses in the network. One that cannot be read
// keeps the pods inside with those that it can have had.
func testGatewaysIPv6(t *testing.T, four netvirt.Gateway, view func(func(*coe.ClusterView, *coe.Gateway)) coe.ClusterView, s mapping.Settings) {
	s.External = "198.51.100.0/24,2001:db8:51::/64"
	outside := coe.GatewayFamily{Address: netip.MustParsePrefix("2001:db8:74::138/64"), NextHop: netip.MustParseAddr("fe80::1")}
	dual := func(change func(*coe.ClusterView, *coe.Gateway)) coe.ClusterView {
		return view(func(v *coe.ClusterView, g *coe.Gateway) {
			g.IPv6, g.Pinned, g.Services = outside, append(g.Pinned, netip.MustParsePrefix("fd00:42:0:1::/64")), true
			v.Networks.NodesIPv6 = nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}
			v.Networks.Services = append(v.Networks.Services, netip.MustParsePrefix("fd00:10::/112"))
			change(v, g)
		})
	}
	whole := four
	whole.IPv6 = netvirt.GatewayFamily{Address: outside.Address, NextHop: outside.NextHop, Link: netip.MustParsePrefix("fd63:6f65:6272:1::c/126")}
	whole.Pods, whole.Pinned = "10.42.0.0/16,fd00:42::/48", "10.42.1.0/24,fd00:42:0:1::/64"
	whole.Inside += ",fd00:10::/112,fd00:42::/48,fd00:96::/64,fd63:6f65:6272:1::/114"
	whole.Services, whole.External, whole.SourcePorts = true, "198.51.100.0/24,2001:db8:51::/64", "1024-65535"
	whole.Nodes = netvirt.PrefixList(synth.Node1.String() + "/32,2001:db8::12/128")
	whole.Own = netvirt.PrefixList(synth.Node1.String() + "/32,2001:db8::11/128,2001:db8::12/128")
	external := func(v *coe.ClusterView, _ *coe.Gateway) {
		v.Nodes[synth.Node1].ExternalIP, v.Nodes[synth.Node1].SecondIP = netip.MustParseAddr("2001:db8::11"), netip.MustParseAddr("2001:db8::12")
	}
	m := cluster(t, dual(external), s)
	require.Equal(t, whole, m[four.Key()])
	require.Equal(t, "fd63:6f65:6272:1::e/126", whole.Families()[1].LinkAddress().String())
	require.Equal(t, netvirt.PrefixList("169.254.192.0/18,fd63:6f65:6272:1::/114"), m[netvirt.NodeNetwork{Prefix: four.Network}.Key()].(netvirt.NodeNetwork).GatewayLinks)
	m = cluster(t, dual(func(_ *coe.ClusterView, g *coe.Gateway) { g.Services = false }), s)
	require.Empty(t, m[netvirt.NodeNetwork{Prefix: four.Network}.Key()].(netvirt.NodeNetwork).GatewayLinks)
	m = cluster(t, dual(external), s)
	require.Equal(t, netvirt.PrefixList("169.254.0.0/16,198.51.100.0/24,2001:db8:51::/64"), m[netvirt.NodeNetwork{Prefix: four.Network}.Key()].(netvirt.NodeNetwork).OnNode)

	closed := cluster(t, dual(func(v *coe.ClusterView, g *coe.Gateway) {
		v.Gateways[0] = &coe.Gateway{Node: g.Node, Unreadable: true, PinsUnknown: true, IPv6Unknown: true}
	}), s)[four.Key()].(netvirt.Gateway)
	require.Equal(t, whole.Pods, closed.Pinned)
	require.Empty(t, closed.Families())
	closed = cluster(t, dual(func(v *coe.ClusterView, g *coe.Gateway) {
		v.Gateways[0] = &coe.Gateway{Node: g.Node, Unreadable: true, PinsUnknown: true}
	}), s)[four.Key()].(netvirt.Gateway)
	require.Equal(t, netvirt.PrefixList("10.42.0.0/16"), closed.Pinned, "the entry has no IPv6")
	require.Equal(t, closed.Pinned, closed.Pods)

	for says, one := range map[string]struct {
		reason coe.Reason
		change func(*coe.ClusterView, *coe.Gateway)
	}{
		"pods do not leave by IPv6": {coe.NotEnforced, func(v *coe.ClusterView, _ *coe.Gateway) { v.Networks.NodesIPv6 = nodenet.Range{} }},
		"2001:db8:74::138 is also the address of node node2": {coe.AddressTaken, func(v *coe.ClusterView, _ *coe.Gateway) {
			v.Nodes[netip.MustParseAddr("192.168.33.13")].SecondIP = outside.Address.Addr()
		}},
		"overlaps fd00:42::/48": {coe.AddressInvalid, func(_ *coe.ClusterView, g *coe.Gateway) { g.IPv6.Address = netip.MustParsePrefix("fd00:42::138/64") }},
		"fd00:43::/64 is not in a range of pods": {coe.AddressInvalid, func(_ *coe.ClusterView, g *coe.Gateway) {
			g.Pinned = append(g.Pinned, netip.MustParsePrefix("fd00:43::/64"))
		}},
	} {
		_, problems := mapping.Cluster(dual(one.change), s)
		require.Len(t, problems, 1, says)
		require.Equal(t, one.reason, problems[0].Reason)
		require.Contains(t, problems[0].Message, says)
	}
	for _, wide := range []string{"2000::/3", "2001:db8:74::/48", "2001:db8:74::/112"} {
		s.External = netvirt.PrefixList(wide)
		_, problems := mapping.Cluster(dual(external), s)
		require.Len(t, problems, 1)
		require.Contains(t, problems[0].Message, wide+" of --external-addresses")
	}
}
