package nodeservices

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

func config(openDaylight bool) Config {
	return Config{Registry: prometheus.NewRegistry(), OpenDaylight: openDaylight, OfDatabase: func(port uint16) bool { return port == 6641 }}
}

// place is the place of a node in a network that balances.
func place() *uplink.Place {
	return &uplink.Place{
		Node: netip.MustParseAddr("192.168.33.11"), Edge: netip.MustParseAddr("100.96.255.254"),
		Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	}
}

// balancingPlace is the place of a node that leads its pods to services.
func balancingPlace() *uplink.Place {
	p := place()
	p.WayOut = &uplink.WayOut{Name: "node:192.168.33.11:port", MAC: "0a:58:c0:a8:21:0b"}
	return p
}

// TestIsolatedNodesThatLead: a node leads isolated namespaces only if OpenDaylight programs it, and the bridge says so.
func TestIsolatedNodesThatLead(t *testing.T) {
	silent, leading := place(), balancingPlace()
	silent.Isolated, leading.Isolated = true, true
	network, openDaylight := New(config(false)), New(config(true))
	require.False(t, openDaylight.leads(silent))
	require.False(t, network.leads(leading))
	require.Equal(t, netip.Addr{}, network.placeOfPorts(leading).IPv4.Edge)
	require.True(t, openDaylight.leads(leading))
	require.Equal(t, nodeports.Place{
		IPv4: nodeports.Addresses{Edge: leading.Edge}, Inside: slices.Concat(leading.Pods, leading.Services), Isolated: true, Balances: true,
	}, openDaylight.placeOfPorts(leading))
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
	s := New(config(false))
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
	require.ElementsMatch(t, []nodeports.Port{at(here, to("10.42.0.2:8080"), to("10.42.1.2:8080")), at(there, to("10.42.1.2:8080"))}, s.exposedPorts(e, place()))
	s.put(e, place())
	require.Len(t, s.own[e.Key()], 2)
	only := *e
	only.Endpoints = e.Endpoints[:1]
	s.put(&only, place())
	require.Equal(t, []nodeports.Port{at(here, to("10.42.0.2:8080"))}, s.own[e.Key()])
	s.remove(&uplink.ExposedPort{Own: true, Protocol: "tcp", Port: 30080}, place())
	require.Empty(t, s.own)

	some := *e
	some.Every = false
	require.Equal(t, []nodeports.Port{at(here.Next(), to("10.42.1.2:8080"))}, s.exposedPorts(&some, place()), "the cluster address has all")
	outside := *e
	outside.Endpoints = []uplink.Endpoint{{IP: netip.MustParseAddr("198.51.100.1"), Port: 8080, Node: there}}
	require.Empty(t, s.exposedPorts(&outside, place()), "only pods")
	database := *e
	database.Endpoints = []uplink.Endpoint{{IP: netip.MustParseAddr("10.42.1.2"), Port: 6641, Node: there}}
	require.Empty(t, s.exposedPorts(&database, place()), "the network leads there")
	cluster := &uplink.ExposedPort{
		Own: true, External: netip.MustParseAddr("10.96.0.10"), Protocol: "tcp", Port: 80, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Local: true,
	}
	require.Len(t, s.exposedPorts(cluster, place()), 1)
	refusing := *cluster
	refusing.Refuses = true
	require.True(t, s.exposedPorts(&refusing, place())[0].Refuses)
	resolver := *cluster
	resolver.External, resolver.Address = netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.53")
	require.Empty(t, s.exposedPorts(&resolver, place()), "nodes do not route it to services")
	balancing := New(config(true))
	for _, e := range []*uplink.ExposedPort{e, cluster} {
		require.Empty(t, balancing.exposedPorts(e, balancingPlace()), "all clients are led by other ports")
	}
}

// TestInsidePorts: a port for clients inside the cluster is one with all endpoints. A node port is also one at the address of the node, for its
// programs, that leads to endpoints on the node and to the node ports of the other nodes. It counts only if the node balances.
func TestInsidePorts(t *testing.T) {
	s := New(config(true))
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
	require.Equal(t, []nodeports.Port{inside, own}, s.exposedPorts(e, balancingPlace()))
	s.put(e, balancingPlace())
	require.Len(t, s.own[e.Key()], 2)
	s.remove(&uplink.ExposedPort{Inside: true, Protocol: "tcp", Port: 30080}, balancingPlace())
	require.Empty(t, s.own)

	external := *e
	external.External = netip.MustParseAddr("192.0.2.10")
	inside.Address = external.External
	require.Equal(t, []nodeports.Port{inside}, s.exposedPorts(&external, balancingPlace()))
	require.Empty(t, New(config(false)).exposedPorts(e, place()), "the network balances")
	far := balancingPlace()
	far.Node = netip.MustParseAddr("2001:db8::1")
	require.Len(t, s.exposedPorts(e, far), 1, "pods and programs ask its IPv4 addresses")
}
