package codec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
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
			role := p.ExternalIDs[identity.IDRole]
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

// Packets from gateways that lead to services reach the second address of a node by its management port. Nothing else is routed
// there.
func TestSecondAddresses(t *testing.T) {
	network := netvirt.NodeNetwork{
		Prefix: netip.MustParsePrefix("100.96.0.0/16"), PrefixIPv6: netip.MustParsePrefix("fd00:96::/64"), GatewayIPv6: netip.MustParseAddr("fd00:96::1"),
		Transit: netvirt.CommonRouteTarget, GatewayLinks: "169.254.192.0/18,fd63:6f65:6272:1::/114",
	}
	port := netvirt.ManagementPort{
		Node: netip.MustParseAddr("192.168.33.11"), Network: network.Prefix, Address: netip.MustParseAddr("100.96.0.2"), ServiceAddress: netip.MustParseAddr("100.96.0.3"),
		IPv6: netvirt.NodeAddresses{Address: netip.MustParseAddr("fd00:96::2"), Service: netip.MustParseAddr("fd00:96::3")}, Second: netip.MustParseAddr("2001:db8::11"),
	}
	second := func(port netvirt.ManagementPort, network netvirt.NodeNetwork) (all []string) {
		m := netvirt.Model{}
		m.Add(port, network)
		for _, r := range testCodec.Encode(port.Key(), netvirt.Model{port.Key(): port}, func(k netvirt.Key) netvirt.Object { return m[k] }).Rows {
			if p, ok := r.Value.(*nb.LogicalRouterPolicy); ok && strings.Contains(p.Match, "2001:db8::11") {
				all = append(all, p.Match+" "+p.Action+" "+strings.Join(p.Nexthops, ","))
			}
		}
		return all
	}
	require.Equal(t, []string{
		`outport == "router:nodes:way-out/100.96.0.0/16" && ip6.src == {fd63:6f65:6272:1::/114} && ip6.dst == 2001:db8::11 reroute fd00:96::2`,
	}, second(port, network))
	network.GatewayLinks = "169.254.192.0/18"
	require.Empty(t, second(port, network))
	network.GatewayLinks = ""
	require.Empty(t, second(port, network))
}

// A gateway with an IPv6 address has the rows of IPv4 for IPv6 too, and lets neighbour discovery in.
func TestGatewayFamilies(t *testing.T) {
	four := netvirt.Gateway{
		Node: netip.MustParseAddr("192.168.33.11"), Network: netip.MustParsePrefix("100.96.0.0/16"), Transit: "100:1", Chassis: "c1", Services: true,
		Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Link: netip.MustParsePrefix("169.254.192.12/30"),
		Pods: "10.42.0.0/16", Pinned: "10.42.1.0/24", Inside: "10.42.0.0/16", External: "198.51.100.0/24", Nodes: "192.168.33.12/32",
	}
	six := four
	six.IPv6 = netvirt.GatewayFamily{
		Address: netip.MustParsePrefix("2001:db8:74::138/64"), NextHop: netip.MustParseAddr("fe80::1"), Link: netip.MustParsePrefix("fd63:6f65:6272:1::c/126"),
	}
	six.Pods, six.Pinned, six.Inside = six.Pods+",fd42::/64", six.Pinned+",fd42::/80", six.Inside+",fd42::/64"
	six.External, six.Nodes = six.External+",2001:db8:51::/64", six.Nodes+",2001:db8::12/128"
	lines := func(o netvirt.Gateway) map[string]bool {
		m := netvirt.Model{}
		m.Add(o)
		decoded, all := netvirt.Model{}, map[string]bool{}
		for _, r := range testCodec.Encode(o.Key(), m, func(k netvirt.Key) netvirt.Object { return m[k] }).Rows {
			decoded.Add(testCodec.Decode(o.Key(), r)...)
			switch row := r.Value.(type) {
			case *nb.ACL:
				all[fmt.Sprintf("acl %d %s %s", row.Priority, row.Action, strings.TrimPrefix(row.Match, `inport == "gateway:outside:192.168.33.11/localnet" && `))] = true
			case *nb.LogicalRouterPolicy:
				match := strings.NewReplacer(`outport == "router:nodes:way-out/100.96.0.0/16"`, "out", `inport == "router:gateway:from-gateway/192.168.33.11"`, "from inside",
					`inport == "router:gateway:outside/192.168.33.11"`, "from outside").Replace(row.Match)
				all[fmt.Sprintf("policy %d %s %s %s", row.Priority, row.Action, match, strings.Join(row.Nexthops, ","))] = true
			case *nb.LogicalRouterStaticRoute:
				all["route "+row.IPPrefix+" "+row.Nexthop] = true
			case *nb.NAT:
				all["nat "+row.LogicalIP+" "+row.ExternalIP] = true
			case *nb.LogicalRouterPort:
				all["port "+row.MAC+" "+strings.Join(row.Networks, ",")] = true
			}
		}
		require.Equal(t, m, decoded)
		return all
	}
	with, without := lines(six), lines(four)
	for line := range without {
		if !strings.HasPrefix(line, "port ") {
			require.True(t, with[line], line)
			delete(with, line)
		}
	}
	for _, hairpin := range strings.Fields(acl.HairpinAddresses) {
		a := netip.MustParseAddr(hairpin)
		require.True(t, slices.ContainsFunc(neverClients.All(), func(p netip.Prefix) bool { return p.Contains(a) }), "policies allow %s", a)
	}
	require.Equal(t, map[string]bool{
		"port 0a:58:a9:fe:c0:0d 169.254.192.13/30,fd63:6f65:6272:1::d/126": true, "port 0a:58:a9:fe:c0:0e 169.254.192.14/30,fd63:6f65:6272:1::e/126": true,
		"port 0a:58:0a:21:4a:8a 10.33.74.138/24,2001:db8:74::138/64": true,
		"route ::/0 fe80::1": true, "route fd42::/64 fd63:6f65:6272:1::d": true, "nat fd42::/64 2001:db8:74::138": true,
		"policy 230 reroute out && ip6.src == fd42::/80 fd63:6f65:6272:1::e": true, "policy 1 drop from inside && ip6.dst == {fd42::/64} ": true,
		"policy 2 reroute from outside && ip6.dst == {2001:db8::12/128} fd63:6f65:6272:1::d":                                      true,
		"acl 1 drop ip6 && ip6.dst != 2001:db8:74::138":                                                                           true,
		"acl 50 allow nd && ip6.dst == {2001:db8:74::138, fe80::858:aff:fe21:4a8a, ff02::1, ff02::1:ff00:138, ff02::1:ff21:4a8a}": true,
		"acl 40 drop ip6.src == {::/127, fd42::/64, fd69::5/128, fe80::/10}":                                                      true, "acl 25 allow ip6.dst == 2001:db8:74::138": true,
		"acl 20 drop ip6.dst == {2001:db8::12/128, fd42::/64}": true, "acl 10 allow ip6.dst == {2001:db8:51::/64}": true,
	}, with)
}

// The router of a gateway with services has the load balancers of its GatewayVIPs, and its switch has the ACLs of restricted
// ones.
func TestGatewayVIPs(t *testing.T) {
	node := netip.MustParseAddr("192.168.33.11")
	gateway := netvirt.Gateway{
		Node: node, Network: netip.MustParsePrefix("100.96.0.0/16"), Transit: netvirt.CommonRouteTarget, Chassis: "c1", Services: true,
		Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Link: netip.MustParsePrefix("169.254.64.12/30"),
		Pods: "10.42.0.0/16", Inside: "10.42.0.0/16,10.96.0.0/12", External: "198.51.100.0/24", Nodes: "192.168.33.11/32,192.168.33.12/32",
		Own: "192.168.33.11/32,203.0.113.12/32", SourcePorts: "32768-65535",
	}
	service := netvirt.Service{UID: "u", Namespace: "shop", Name: "web", Places: "192.168.33.11"}
	vip := netvirt.GatewayVIP{
		Service: "u", Namespace: "shop", Gateway: node, Protocol: "tcp", VIP: netip.MustParseAddrPort("10.33.74.138:30080"), Endpoints: "10.42.1.2:8080",
	}
	restricted, local := vip, vip
	restricted.VIP, restricted.Restricted, restricted.Sources = netip.MustParseAddrPort("198.51.100.9:80"), true, "192.0.2.0/24,203.0.113.7/32"
	local.Protocol, local.Local, local.Endpoints, local.Waits = "udp", true, "", true
	group := netvirt.Model{}
	group.Add(service, vip, restricted, local)
	encode := func(k netvirt.Key, group netvirt.Model, at netvirt.Gateway) *ovsdb.RowSet {
		return testCodec.Encode(k, group, func(k netvirt.Key) netvirt.Object { return netvirt.Model{at.Key(): at}[k] })
	}
	texts := func(set *ovsdb.RowSet) (acls, others []string) {
		for _, r := range set.Rows {
			switch row := r.Value.(type) {
			case *nb.ACL:
				acls = append(acls, fmt.Sprintf("%d %s %s", row.Priority, row.Action, strings.TrimPrefix(row.Match, `inport == "gateway:outside:192.168.33.11/localnet" && `)))
			case *nb.LoadBalancer:
				others = append(others, fmt.Sprint(row.ExternalIDs[identity.IDRole], " ", row.Vips, " ", row.Options["reject"], " ", row.Options["skip_snat"]))
				require.Equal(t, "192.168.33.11", row.ExternalIDs[idPlaces], row.Name)
			case *nb.LogicalRouterPolicy:
				others = append(others, row.Match)
			}
		}
		return acls, others
	}
	set := encode(service.Key(), group, gateway)
	acls, balancers := texts(set)
	require.ElementsMatch(t, []string{
		"30 drop ip4.dst == 198.51.100.9 && tcp.dst == 80",
		"31 allow ip4.dst == 198.51.100.9 && tcp.dst == 80 && ip4.src == {192.0.2.0/24, 203.0.113.7/32}",
	}, acls)
	require.ElementsMatch(t, []string{
		"tcp map[] true ", "gateway/192.168.33.11/udp/local map[10.33.74.138:30080:] false true",
		"gateway/192.168.33.11/tcp map[10.33.74.138:30080:10.42.1.2:8080 198.51.100.9:80:10.42.1.2:8080] true ",
	}, balancers)
	decoded := netvirt.Model{}
	linked := 0
	for _, r := range set.Rows {
		decoded.Add(testCodec.Decode(service.Key(), r)...)
	}
	require.Equal(t, group, decoded)
	for _, l := range set.Links {
		if l.Parent == testCodec.routerUUID(gateway.Key()) {
			linked++
		}
	}
	require.Equal(t, 2, linked)

	closed := gateway
	closed.Services = false
	acls, _ = texts(encode(service.Key(), group, closed))
	require.Empty(t, acls)
	acls, _ = texts(encode(gateway.Key(), netvirt.Model{gateway.Key(): closed}, closed))
	require.Equal(t, []string{"1 drop ip4 && ip4.dst != 10.33.74.138"}, acls, "only answers come in")
	acls, policies := texts(encode(gateway.Key(), netvirt.Model{gateway.Key(): gateway}, gateway))
	require.ElementsMatch(t, []string{
		"1 drop ip4 && ip4.dst != 10.33.74.138", "10 allow ip4.dst == {198.51.100.0/24}", "25 allow ip4.dst == 10.33.74.138",
		"20 drop ip4.dst == {10.42.0.0/16, 10.96.0.0/12, 192.168.33.11/32, 192.168.33.12/32}",
		"40 drop ip4.src == {0.0.0.0/8, 10.42.0.0/16, 10.96.0.0/12, 127.0.0.0/8, 169.254.0.0/16, 192.168.33.11/32, 203.0.113.12/32}",
	}, acls)
	const port = `"router:gateway:outside/192.168.33.11"`
	require.Contains(t, policies, "inport == "+port+" && ip4.dst == {192.168.33.11/32, 192.168.33.12/32}")
	require.Contains(t, policies, "inport == "+port+" && outport == "+port)
}
