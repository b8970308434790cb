package codec

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
				others = append(others, fmt.Sprint(row.ExternalIDs[IDRole], " ", row.Vips, " ", row.Options["reject"], " ", row.Options["skip_snat"]))
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
		"40 drop ip4.src == {10.42.0.0/16, 10.96.0.0/12, 192.168.33.11/32, 203.0.113.12/32}",
	}, acls)
	const port = `"router:gateway:outside/192.168.33.11"`
	require.Contains(t, policies, "inport == "+port+" && ip4.dst == {192.168.33.11/32, 192.168.33.12/32}")
	require.Contains(t, policies, "inport == "+port+" && outport == "+port)
}
