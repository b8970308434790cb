package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// balancingPlace is the place of a node that leads its pods to services.
func balancingPlace() *uplink.Place {
	p := place()
	p.WayOut = &uplink.WayOut{Name: "node:192.168.33.11:port", MAC: "0a:58:c0:a8:21:0b"}
	return p
}

// TestWaysOut: a node has a link to each namespace with pods on it, beside its management port. The kernel takes packets by it
// from pods that are routed to the management port.
func TestWaysOut(t *testing.T) {
	p := balancingPlace()
	w, err := newWanted(p, records(map[string][]string{"a/one": {"10.42.0.2"}, "a/two": {"10.42.0.3"}, "b/one": {"10.42.0.9"}}), nil)
	require.NoError(t, err)
	w.namePorts()
	require.Len(t, w.pairs, 3)
	for _, pair := range w.pairs {
		require.Regexp(t, `^tap[0-9a-f]{8}-[0-9a-f]{2}$`, pair.port, "OpenDaylight recognises the port on every switch")
		require.Equal(t, []netip.Addr{p.Address}, pair.addresses)
		require.Equal(t, pair.link != linkName, pair.filter == "2")
		if pair.link != linkName {
			require.Regexp(t, `^node:192\.168\.33\.11:port:[ab]$`, pair.iface)
			require.Equal(t, "0a:58:c0:a8:21:0b", pair.mac.String())
			require.Empty(t, pair.routes)
		}
	}
	p.WayOut.MAC = "x"
	_, err = newWanted(p, records(map[string][]string{"a/one": {"10.42.0.2"}}), nil)
	require.ErrorContains(t, err, "MAC address")
}

// TestBalancingRules: packets to cluster addresses that nobody serves are refused, and pods leave by the links of their namespaces.
func TestBalancingRules(t *testing.T) {
	ns, run := namespace.WithShell(t)
	w := wantedOf(t, balancingPlace())
	w.namePorts()
	twice(t, func() (bool, error) { return putRules(ns, w) })
	rules := run("nft list ruleset")
	for _, want := range []string{
		`oifname "coe0" ip daddr 10.96.0.0/12 counter packets 0 bytes 0 reject comment`,
		`iifname "coe-*" oifname != "coe0" counter packets 0 bytes 0 masquerade`,
		`iifname "coe-*" tcp dport 6640-6644 counter packets 0 bytes 0 drop`,
		"chain no-service",
	} {
		require.Contains(t, strings.Join(strings.Fields(rules), " "), want)
	}
	require.NotContains(t, rules, "snat to", "no source of the network's load balancers")
	twice(t, func() (bool, error) { return putRules(ns, wantedOf(t, place())) })
	require.NotContains(t, run("nft list ruleset"), "no-service")
}

// TestClusterAddressesThatNodesRoute: a tenant cannot claim an address of others as a cluster address.
func TestClusterAddressesThatNodesRoute(t *testing.T) {
	at := func(external, address string) *uplink.ExposedPort {
		return &uplink.ExposedPort{External: netip.MustParseAddr(external), Address: netip.MustParseAddr(address)}
	}
	require.True(t, routes(balancingPlace(), at("10.96.0.10", "10.96.0.10")))
	require.True(t, routes(balancingPlace(), at("192.0.2.10", "10.96.0.10")))
	require.False(t, routes(balancingPlace(), at("192.0.2.53", "192.0.2.53")), "a DNS server of nodes")
}

// TestOwnPorts: a node port for programs of the node is one at the address of each node with endpoints, and one with all
// endpoints at the address of the node itself. A changed port removes the former ones.
func TestOwnPorts(t *testing.T) {
	n := New(Config{Registry: prometheus.NewRegistry()})
	to := netip.MustParseAddrPort
	here, there := place().Node, netip.MustParseAddr("192.168.33.12")
	e := &uplink.ExposedPort{
		Own: true, Every: true, Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Affinity: 120,
		Endpoints: []uplink.Endpoint{
			{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080, Node: here}, {IP: netip.MustParseAddr("10.42.1.2"), Port: 8080, Node: there},
		},
	}
	at := func(address netip.Addr, endpoints ...netip.AddrPort) nodeports.Port {
		return nodeports.Port{Address: address, Own: true, Protocol: "tcp", Number: 30080, Service: to("10.96.0.10:80"), Affinity: 2 * time.Minute, Endpoints: endpoints}
	}
	require.ElementsMatch(t, []nodeports.Port{at(here, to("10.42.0.2:8080"), to("10.42.1.2:8080")), at(there, to("10.42.1.2:8080"))}, n.exposedPorts(e, place()))
	n.put(e, place())
	require.Len(t, n.own[e.Key()], 2)
	only := *e
	only.Endpoints = e.Endpoints[:1]
	n.put(&only, place())
	require.Equal(t, []nodeports.Port{at(here, to("10.42.0.2:8080"))}, n.own[e.Key()])
	n.remove(&uplink.ExposedPort{Own: true, Protocol: "tcp", Port: 30080}, place())
	require.Empty(t, n.own)

	some := *e
	some.Every = false
	require.Equal(t, []nodeports.Port{at(here.Next(), to("10.42.1.2:8080"))}, n.exposedPorts(&some, place()), "the cluster address has all")
	outside := *e
	outside.Endpoints = []uplink.Endpoint{{IP: netip.MustParseAddr("198.51.100.1"), Port: 8080, Node: there}}
	require.Empty(t, n.exposedPorts(&outside, place()), "only pods")
	cluster := &uplink.ExposedPort{
		Own: true, External: netip.MustParseAddr("10.96.0.10"), Protocol: "tcp", Port: 80, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Local: true,
	}
	require.Len(t, n.exposedPorts(cluster, place()), 1)
	refusing := *cluster
	refusing.Refuses = true
	require.True(t, n.exposedPorts(&refusing, place())[0].Refuses)
	resolver := *cluster
	resolver.External, resolver.Address = netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.53")
	require.Empty(t, n.exposedPorts(&resolver, place()), "nodes do not route it to services")
	balancing := New(Config{Registry: prometheus.NewRegistry(), OpenDaylight: true})
	for _, e := range []*uplink.ExposedPort{e, cluster} {
		require.Empty(t, balancing.exposedPorts(e, balancingPlace()), "all clients are led by other ports")
	}
}

// TestInsidePorts: a port for clients inside the cluster is one with all endpoints. A node port is also one at the address of the node, for its
// programs, that leads to endpoints on the node and to the node ports of the other nodes. It counts only if the node balances.
func TestInsidePorts(t *testing.T) {
	n := New(Config{Registry: prometheus.NewRegistry(), OpenDaylight: true})
	to := netip.MustParseAddrPort
	here, there := place().Node, netip.MustParseAddr("192.168.33.12")
	e := &uplink.ExposedPort{
		Inside: true, Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Affinity: 120,
		Endpoints: []uplink.Endpoint{
			{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080, Node: here}, {IP: netip.MustParseAddr("10.42.1.2"), Port: 8080, Node: there},
			{IP: netip.MustParseAddr("10.42.1.3"), Port: 8080, Node: there}, {IP: netip.MustParseAddr("10.42.2.2"), Port: 8080, Node: netip.MustParseAddr("2001:db8::3")},
		},
	}
	inside := nodeports.Port{
		Inside: true, Address: netip.IPv4Unspecified(), Protocol: "tcp", Number: 30080, Service: to("10.96.0.10:80"), Affinity: 2 * time.Minute,
		Endpoints: []netip.AddrPort{to("10.42.0.2:8080"), to("10.42.1.2:8080"), to("10.42.1.3:8080"), to("10.42.2.2:8080")},
	}
	own := inside
	own.Inside, own.Own, own.Address = false, true, here
	own.Endpoints = []netip.AddrPort{to("10.42.0.2:8080"), to("192.168.33.12:30080"), to("192.168.33.12:30080"), to("10.42.2.2:8080")}
	require.Equal(t, []nodeports.Port{inside, own}, n.exposedPorts(e, balancingPlace()))
	n.put(e, balancingPlace())
	require.Len(t, n.own[e.Key()], 2)
	n.remove(&uplink.ExposedPort{Inside: true, Protocol: "tcp", Port: 30080}, balancingPlace())
	require.Empty(t, n.own)

	external := *e
	external.External = netip.MustParseAddr("192.0.2.10")
	inside.Address = external.External
	require.Equal(t, []nodeports.Port{inside}, n.exposedPorts(&external, balancingPlace()))
	require.Empty(t, New(Config{Registry: prometheus.NewRegistry()}).exposedPorts(e, place()), "the network balances")
	far := balancingPlace()
	far.Node = netip.MustParseAddr("2001:db8::1")
	require.Len(t, n.exposedPorts(e, far), 1, "pods and programs ask its IPv4 addresses")
}
