package service_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// Gateways with services answer at their own address on node ports, and on external addresses in the ranges that are
// let in.
func TestGatewayVIPs(t *testing.T) {
	external, balanced := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	elsewhere := netip.MustParseAddr("192.168.33.99")
	s := exposing()
	s.External = "192.0.2.0/24"
	view := func(change func(*coe.View, *coe.Service)) coe.View {
		v := exposedView(func(s *coe.Service) {
			s.ExternalIPs, s.LoadBalancerIPs = []netip.Addr{external, balanced}, []netip.Addr{balanced}
			s.Ports = s.Ports[:1]
		})
		for _, a := range v.Services[0].ExternalIPs {
			v.VIPs[coe.VIP{Address: a, Protocol: "tcp", Port: 80}] = true
		}
		v.Gateways = []*coe.Gateway{
			{Node: v.Leases[0].Node, Address: netip.MustParsePrefix("10.33.74.138/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Services: true},
			{Node: netip.MustParseAddr("192.168.33.98"), Address: netip.MustParsePrefix("10.33.74.139/24"), NextHop: netip.MustParseAddr("10.33.74.253")},
			{Node: elsewhere, Address: netip.MustParsePrefix("10.33.74.140/24"), NextHop: netip.MustParseAddr("10.33.74.253"), Services: true},
		}
		change(&v, v.Services[0])
		return v
	}
	mapped := func(v coe.View, s mapping.Settings) (all []netvirt.GatewayVIP, problems []coe.Problem) {
		m, problems := mapping.Map(v, s)
		for _, k := range m.Keys() {
			if o, ok := m[k].(netvirt.GatewayVIP); ok {
				all = append(all, o)
			}
		}
		return all, problems
	}
	here := view(func(*coe.View, *coe.Service) {}).Leases[0].Node
	const ready = netvirt.EndpointList("10.11.2.28:8080,172.30.1.9:8080")
	at := func(node netip.Addr, vip string, endpoints netvirt.EndpointList) netvirt.GatewayVIP {
		return netvirt.GatewayVIP{
			Service: svc1, Namespace: "default", Gateway: node, Protocol: "tcp", VIP: netip.MustParseAddrPort(vip), Endpoints: endpoints,
		}
	}
	all := []netvirt.GatewayVIP{
		at(here, "10.33.74.138:30080", ready), at(here, "192.0.2.10:80", ready), at(here, "192.0.2.11:80", ready),
		at(elsewhere, "10.33.74.140:30080", ready), at(elsewhere, "192.0.2.10:80", ready), at(elsewhere, "192.0.2.11:80", ready),
	}
	vips, problems := mapped(view(func(*coe.View, *coe.Service) {}), s)
	require.Empty(t, problems)
	require.ElementsMatch(t, all, vips)

	within := slices.Clone(all)
	for i := range within {
		within[i].Endpoints = "10.11.2.28:8080"
	}
	networks := &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.11.0.0/16")}}
	vips, problems = mapped(view(func(v *coe.View, _ *coe.Service) { v.Networks = networks }), s)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "gateways do not lead to endpoints outside the network of pods and nodes, such as 172.30.1.9")
	require.ElementsMatch(t, within, vips)
	for _, inside := range []func(*coe.View){
		func(v *coe.View) { v.Nodes = map[netip.Addr]*coe.Node{netip.MustParseAddr("172.30.1.9"): {}} },
		func(v *coe.View) {
			v.Networks = &coe.Networks{Pods: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")}}
		},
		func(v *coe.View) {
			v.Nodes = map[netip.Addr]*coe.Node{netip.MustParseAddr("2001:db8::9"): {SecondIP: netip.MustParseAddr("172.30.1.9")}}
		},
	} {
		vips, problems = mapped(view(func(v *coe.View, _ *coe.Service) {
			v.Networks = networks
			inside(v)
		}), s)
		require.Empty(t, problems)
		require.ElementsMatch(t, all, vips)
	}

	vips, problems = mapped(view(func(v *coe.View, _ *coe.Service) { // two nodes report the address
		v.Networks, v.Nodes = networks, map[netip.Addr]*coe.Node{}
		for _, node := range []string{"2001:db8::9", "2001:db8::10"} {
			v.Nodes[netip.MustParseAddr(node)] = &coe.Node{SecondIP: netip.MustParseAddr("172.30.1.9")}
		}
	}), s)
	require.Len(t, problems, 1)
	require.ElementsMatch(t, within, vips)

	local := slices.Clone(all)
	for i := range local {
		local[i].Local, local[i].Endpoints = true, "10.11.2.28:8080"
		if local[i].Gateway == elsewhere {
			local[i].Endpoints, local[i].Waits = "", true
		}
	}
	vips, problems = mapped(view(func(_ *coe.View, s *coe.Service) { s.Local = true }), s)
	require.Empty(t, problems)
	require.ElementsMatch(t, local, vips, "endpoints on the node of the gateway")

	for i := range local {
		local[i].Endpoints, local[i].Waits = "", true
	}
	vips, problems = mapped(view(func(v *coe.View, s *coe.Service) {
		s.Local = true
		v.Gateways[0].Pinned = []netip.Prefix{netip.MustParsePrefix("10.11.0.0/16")}
		v.Gateways[1].Pinned = []netip.Prefix{netip.MustParsePrefix("10.11.2.0/24")}
	}), s)
	require.Len(t, problems, 1)
	require.Equal(t, coe.NotEnforced, problems[0].Reason)
	require.Contains(t, problems[0].Message, "does not lead to endpoints such as 10.11.2.28, which answer by the gateway of node 192.168.33.98")
	require.ElementsMatch(t, local, vips, "its answers leave by another gateway")

	for i := range local {
		local[i].Waits = false
	}
	vips, _ = mapped(view(func(v *coe.View, s *coe.Service) { s.Local, v.Endpoints = true, nil }), s)
	require.ElementsMatch(t, local, vips, "connections are rejected if there is no endpoint at all")

	restricted := slices.Clone(all)
	restricted[2].Restricted, restricted[2].Sources = true, "198.51.100.0/24"
	restricted[5].Restricted, restricted[5].Sources = true, "198.51.100.0/24"
	vips, problems = mapped(view(func(_ *coe.View, s *coe.Service) {
		s.Restricted, s.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	}), s)
	require.Empty(t, problems)
	require.ElementsMatch(t, restricted, vips, "ranges count for load balancer addresses")

	vips, _ = mapped(view(func(v *coe.View, _ *coe.Service) { v.VIPs[coe.PortOnNodes("tcp", 30080)] = false }), s)
	require.Len(t, vips, 4, "another namespace has the node port")
	outside := s
	outside.External = "192.0.2.10/32"
	vips, _ = mapped(view(func(*coe.View, *coe.Service) {}), outside)
	require.Len(t, vips, 4, "gateways do not let the other address in")
	vips, problems = mapped(view(func(v *coe.View, _ *coe.Service) { v.Gateways[0].Address = netip.PrefixFrom(external, 24) }), s)
	require.Contains(t, fmt.Sprint(problems), "its external address 192.0.2.10 is the address of the gateway of node "+here.String())
	require.NotContains(t, fmt.Sprint(vips), "192.0.2.10:80")

	six := s
	six.NodesIPv6, six.External = true, "192.0.2.0/24,2001:db8:51::/64"
	dual := func(change func(*coe.Service)) []netvirt.GatewayVIP {
		vips, problems := mapped(view(func(v *coe.View, s *coe.Service) {
			cluster, outside := netip.MustParseAddr("fd97::10"), netip.MustParseAddr("2001:db8:51::10")
			s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs = append(s.ClusterIPs, cluster), append(s.ExternalIPs, outside), append(s.LoadBalancerIPs, outside)
			v.VIPs[coe.VIP{Address: cluster}], v.VIPs[coe.VIP{Address: outside, Protocol: "tcp", Port: 80}] = true, true
			v.Gateways[0].IPv6 = coe.GatewayFamily{Address: netip.MustParsePrefix("2001:db8:74::138/64"), NextHop: netip.MustParseAddr("fe80::1")}
			change(s)
		}), six)
		require.Empty(t, problems)
		return vips
	}
	both := append(slices.Clone(all), at(here, "[2001:db8:74::138]:30080", ""), at(here, "[2001:db8:51::10]:80", ""))
	require.ElementsMatch(t, both, dual(func(*coe.Service) {}), "gateways without an IPv6 address lead by IPv4 alone")
	for i := range both {
		if both[i].VIP.Port() == 80 && both[i].VIP.Addr() != external {
			both[i].Restricted = true
			if both[i].VIP.Addr().Is6() {
				both[i].Sources = "2001:db8:77::/64"
			} else {
				both[i].Sources = "198.51.100.0/24"
			}
		}
	}
	require.ElementsMatch(t, both, dual(func(s *coe.Service) {
		s.Restricted, s.SourceRanges = true, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:77::/64")}
	}), "ranges count for addresses of their family")

	for _, without := range []func(*mapping.Settings){
		func(s *mapping.Settings) { s.Limits.NoGateways = true }, func(s *mapping.Settings) { s.ManagementPorts = false },
		func(s *mapping.Settings) { s.Isolation = mapping.IsolationNamespace },
	} {
		s := s
		without(&s)
		vips, _ = mapped(view(func(*coe.View, *coe.Service) {}), s)
		require.Empty(t, vips)
	}
}

// TestGatewaysChangeServices: services are mapped again if a gateway changes.
func TestGatewaysChangeServices(t *testing.T) {
	var changed state.Changed
	store := state.NewStore(func(c state.Changed) { changed = c }, coe.RESTCONF)
	store.Update(func(tx *state.Tx) {
		tx.PutService(coe.RESTCONF, &coe.Service{UID: svc1, Name: "web", Namespace: "shop"})
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: uid1, Name: "a", Namespace: "other"})
	})
	g := &coe.Gateway{Node: synth.Node1, Services: true}
	store.Update(func(tx *state.Tx) { tx.PutGateway(g) })
	require.Equal(t, state.Changed{Namespaces: []string{"shop"}, Cluster: true}, changed)
	require.Equal(t, []*coe.Gateway{g}, store.View("shop").Gateways)
	store.Update(func(tx *state.Tx) { tx.DeleteGateway(synth.Node1.String()) })
	require.Equal(t, []string{"shop"}, changed.Namespaces)
}
