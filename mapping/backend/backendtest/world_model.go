package backendtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Model returns the world's model, with objects of all kinds.
func (w *World) Model() netvirt.Model {
	m := netvirt.Model{}
	if !w.isolated {
		m.Add(netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget})
		w.nodesModel(m)
	}
	for _, p := range w.pods {
		w.podModel(m, p)
	}
	if w.isolated {
		w.nodePorts(m)
	}
	sorted := slices.SortedFunc(slices.Values(w.services), func(a, b *service) int { return strings.Compare(a.uid, b.uid) })
	for _, s := range sorted {
		w.serviceModel(m, s)
	}
	w.policies.model(m, w)
	return m
}

// ModelFor returns the world's model, as far as a backend has it.
func (w *World) ModelFor(b Backend) netvirt.Model {
	m := w.Model()
	if limited, ok := b.(interface{ Limits() netvirt.Limits }); ok {
		if w.attached && !limited.Limits().NoPhysicalNetworks {
			attach(m)
		}
		if limited.Limits().NodeGateways {
			w.addGateways(m)
		}
	}
	return m.Select(b.Kinds())
}

// attach gives the elan-instances of the first two namespaces a physical network.
func attach(m netvirt.Model) {
	for _, o := range m {
		elan, _ := o.(netvirt.ELANInstance)
		if ns := slices.Index(namespaces, string(elan.Scope())); ns == 0 || ns == 1 {
			elan.SegmentType, elan.SegmentationID, elan.PhysicalNetwork = netvirt.SegmentVLAN, uint32(100+ns), "plant"
			elan.Subnets = netvirt.NewPrefixList(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(1 + ns)}), 16))
			m.Add(elan)
		}
	}
}

// addGateways gives the nodes the gateways of their subnets, except for elan-instances with a physical network. It gives every second node
// a host name. It gives nodes a chassis, another one, or none, as pods come.
func (w *World) addGateways(m netvirt.Model) {
	all := map[netip.Addr][]netip.Prefix{}
	for _, o := range m {
		if s, ok := o.(netvirt.Subnet); ok {
			elan, _ := m[netvirt.Key{Kind: netvirt.KindELANInstance, Name: s.ELAN}].(netvirt.ELANInstance)
			if elan.PhysicalNetwork != "" && !s.Prefix.IsSingleIP() {
				continue
			}
			node, _, _ := netvirt.ParseELANName(s.ELAN)
			all[node] = append(all[node], netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
	}
	for node, gateways := range all {
		o, _ := m[netvirt.Node{Address: node}.Key()].(netvirt.Node)
		o.Address, o.Gateways = node, netvirt.NewGatewayList(gateways...)
		bytes := node.AsSlice()
		n := int(bytes[len(bytes)-1])
		if n%2 == 0 {
			o.HostName = "host-" + node.String()
		}
		if version := (w.born + n) % 3; version > 0 {
			o.Chassis = fmt.Sprintf("chassis-%s-%d", node, version)
		}
		m.Add(o)
	}
}

func (w *World) vpn(ns string) netvirt.VPNInstance {
	name := netvirt.VPNName(ns)
	if ns == keepsOlderName {
		name = netvirt.VPNNames(ns)[1]
	}
	v := netvirt.VPNInstance{
		Name: name, Namespace: ns, RouteDistinguisher: fmt.Sprintf("100:%d", 2+slices.Index(namespaces, ns)),
	}
	if !w.isolated {
		v.Transit = netvirt.CommonRouteTarget
	}
	return v
}

// nodesModel adds the nodes that have a management port.
func (w *World) nodesModel(m netvirt.Model) {
	network := netip.MustParsePrefix("100.96.0.0/16")
	var onNode netvirt.PrefixList
	if w.gateways != [nodes]byte{} {
		onNode = netvirt.NewPrefixList(netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("2001:db8:51::/64"))
	}
	join := netvirt.NodeNetwork{Prefix: network, Gateway: network.Addr().Next(), Transit: netvirt.CommonRouteTarget, OnNode: onNode}
	if slices.Contains(w.gateways[:], servingGateway) {
		join.GatewayLinks = netvirt.NewPrefixList(netip.MustParsePrefix("169.254.192.0/18"), netip.MustParsePrefix("fd63:6f65:6272:1::/114"))
	}
	if w.managed[1] { // then nodes have IPv6 addresses
		join.PrefixIPv6 = netip.MustParsePrefix("fd00:96::/64")
		join.GatewayIPv6 = join.PrefixIPv6.Addr().Next()
	}
	for n, managed := range w.managed {
		if !managed {
			continue
		}
		m.Add(
			netvirt.Node{Address: nodeAddress(n)},
			join,
			netvirt.ManagementPort{
				Node: nodeAddress(n), Network: network, MAC: fmt.Sprintf("0a:58:64:60:00:%02x", 2+2*n), Chassis: fmt.Sprintf("node-%d", n),
				Address:        netip.AddrFrom4([4]byte{100, 96, 0, byte(2 + 2*n)}),
				ServiceAddress: netip.AddrFrom4([4]byte{100, 96, 0, byte(3 + 2*n)}),
				EdgeAddress:    edgeAddress(n),
				IPv6:           ipv6Addresses(join, n),
				Second:         secondAddress(join, n),
			})
		if g := w.gateways[n]; g != 0 {
			m.Add(w.gateway(n, network, g))
		}
	}
}

// servingGateway is the version of gateways that lead clients to services.
const servingGateway = 2

// gateway returns the gateway of a node. Its version determines what it pins, and whether it serves and works.
func (w *World) gateway(n int, network netip.Prefix, version byte) netvirt.Gateway {
	pods := netip.MustParsePrefix("10.0.0.0/8")
	pinned := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)}
	o := netvirt.Gateway{
		Node: nodeAddress(n), Network: network, Transit: netvirt.CommonRouteTarget, Chassis: fmt.Sprintf("chassis-%d", n),
		Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + n)}), 24), NextHop: netip.AddrFrom4([4]byte{192, 0, 2, 254}),
		Link: netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 64, byte(4 * n)}), 30),
		Pods: netvirt.NewPrefixList(pods), Pinned: netvirt.NewPrefixList(pinned[:min(version-1, 1)]...), Inside: netvirt.NewPrefixList(pods, network),
	}
	if w.managed[1] { // then nodes have IPv6 addresses
		pods6, inside6 := netip.MustParsePrefix("fd00::/16"), netip.MustParsePrefix("fd00:96::/64")
		o.Pods, o.Inside = netvirt.NewPrefixList(pods, pods6), netvirt.NewPrefixList(pods, network, pods6, inside6)
		o.IPv6 = netvirt.GatewayFamily{
			Address: netip.MustParsePrefix(fmt.Sprintf("2001:db8:2::%d/64", 1+n)), NextHop: netip.MustParseAddr("fe80::1"),
			Link: netip.MustParsePrefix(fmt.Sprintf("fd63:6f65:6272:1::%x/126", 4*n)),
		}
	}
	if o.Services = version == servingGateway; o.Services {
		o.External, o.Nodes = "198.51.100.0/24", "192.168.33.10/32"
		if o.IPv6.Link.IsValid() {
			o.External, o.Nodes = "198.51.100.0/24,2001:db8:51::/64", "192.168.33.10/32,2001:db8::10/128"
		}
	}
	if version == 3 {
		o = netvirt.Gateway{Node: o.Node, Network: o.Network, Transit: o.Transit, Pinned: o.Pinned, Pods: o.Pods}
	}
	return o
}

// secondAddress returns the second internal address of a node, if nodes have IPv6 addresses. The first node has none.
func secondAddress(network netvirt.NodeNetwork, n int) netip.Addr {
	if !network.PrefixIPv6.IsValid() || n == 0 {
		return netip.Addr{}
	}
	bytes := netip.MustParseAddr("2001:db8::").As16()
	bytes[15] = byte(n)
	return netip.AddrFrom16(bytes)
}

// ipv6Addresses returns the IPv6 addresses of a node. The first node has no edge address.
func ipv6Addresses(network netvirt.NodeNetwork, n int) (a netvirt.NodeAddresses) {
	if !network.PrefixIPv6.IsValid() {
		return a
	}
	at := func(last byte) netip.Addr {
		bytes := network.PrefixIPv6.Addr().As16()
		bytes[15] = last
		return netip.AddrFrom16(bytes)
	}
	a.Address, a.Service = at(byte(2+2*n)), at(byte(3+2*n))
	if n != 0 {
		a.Edge = at(byte(254 - n))
	}
	return a
}

// edgeAddress returns the edge address of a node. The first node has none.
func edgeAddress(n int) netip.Addr {
	if n == 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{100, 96, 255, byte(254 - n)})
}

// nodePorts gives the nodes a port in each of their elan-instances that has a subnet of their
// family.
func (w *World) nodePorts(m netvirt.Model) {
	for _, k := range m.Keys() {
		subnet, ok := m[k].(netvirt.Subnet)
		node, _, _ := netvirt.ParseELANName(subnet.ELAN)
		if !ok || node.Is4() != subnet.Gateway.Is4() || !w.managedNode(node) {
			continue
		}
		port := netvirt.NodePort{ // the last subnet wins
			ELAN: subnet.ELAN, Network: subnet.Prefix, VPN: subnet.VPN, Address: node, MAC: netvirt.NodePortMAC(node), Chassis: "node",
		}
		if len(subnet.ELAN)%2 == 0 { // its node leads to services
			port.Edge, port.EdgeGateway = netip.AddrFrom4([4]byte{100, 96, 0, node.AsSlice()[len(node.AsSlice())-1]}), netip.MustParseAddr("100.96.0.1")
		}
		for _, other := range m.Keys() {
			if six, ok := m[other].(netvirt.Subnet); ok && six.ELAN == subnet.ELAN && six.Gateway.Is6() && node.Is4() {
				port.NetworkIPv6, port.IPv6 = six.Prefix, netip.MustParseAddr("fd63::1")
			}
		}
		m.Add(port)
	}
}

func (w *World) managedNode(node netip.Addr) bool {
	for n, managed := range w.managed {
		if managed && nodeAddress(n) == node {
			return true
		}
	}
	return false
}

func nodeAddress(n int) netip.Addr {
	if n == 2 {
		return netip.MustParseAddr("fd00:33::12")
	}
	return netip.AddrFrom4([4]byte{192, 168, 33, byte(10 + n)})
}

func (w *World) podModel(m netvirt.Model, p *pod) {
	node := nodeAddress(p.node)
	elan := netvirt.ELANName(node, p.ns)
	name := netvirt.InterfaceName(p.ns, p.name, "", true)
	chassis := ""
	if p.chassis {
		chassis = fmt.Sprintf("node-%d", p.node)
	}
	m.Add(
		netvirt.Node{Address: node},
		netvirt.ELANInstance{
			Name: elan, SegmentType: netvirt.SegmentVXLAN,
			SegmentationID: uint32(70000 + 10*slices.Index(namespaces, p.ns) + p.node),
		},
		w.vpn(p.ns),
		netvirt.Interface{
			Name: name, Namespace: p.ns, Pod: p.name, PodUID: p.uid, UID: p.uid, ParentInterface: netvirt.PortName(name, p.uid),
			DHCP: p.node != 0,
		},
		netvirt.ELANInterface{Name: name, Namespace: p.ns, ELAN: elan, Chassis: chassis},
		netvirt.VPNInterface{Name: name, Namespace: p.ns, VPN: w.vpn(p.ns).Name},
	)
	for family, slot := range p.slots {
		if slot == 0 {
			continue
		}
		address, subnet := w.address(p, family, slot)
		if p.node != 0 {
			subnet.LeaseTime = 7200
		}
		subnet.ELAN, subnet.VPN = elan, w.vpn(p.ns).Name
		m.Add(
			subnet,
			netvirt.MACEntry{Interface: name, Namespace: p.ns, MAC: p.mac, Address: address},
			netvirt.Adjacency{
				Interface: name, Namespace: p.ns, Address: address, MAC: p.mac,
				ELAN: elan, Network: subnet.Prefix, Gateway: subnet.Gateway,
			},
		)
	}
}

// address returns a pod's address and its subnet. Isolated namespaces have the same
// addresses.
func (w *World) address(p *pod, family, slot int) (netip.Addr, netvirt.Subnet) {
	ns := byte(1 + slices.Index(namespaces, p.ns))
	if w.isolated {
		ns = 0
	}
	block, at := byte((slot-1)/blockSize), byte(2+(slot-1)%blockSize)
	node := byte(p.node)
	dns := netvirt.NewAddrList(netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:96::a"))
	switch family {
	case ipv4:
		return netip.AddrFrom4([4]byte{10, ns, node, 8*block + at}), netvirt.Subnet{
			Prefix:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, ns, node, 8 * block}), 29),
			Gateway: netip.AddrFrom4([4]byte{10, ns, node, 8*block + 1}), DNS: dns,
		}
	case ipv6:
		at16 := func(last byte) netip.Addr {
			return netip.AddrFrom16([16]byte{0: 0xfd, 3: ns, 5: node, 7: block, 15: last})
		}
		return at16(at), netvirt.Subnet{Prefix: netip.PrefixFrom(at16(0), 120), Gateway: at16(1), DNS: dns}
	default:
		gateway := netip.AddrFrom4([4]byte{169, 254, 1, 1})
		return netip.AddrFrom4([4]byte{172, 16 + ns, node, byte(slot)}), netvirt.Subnet{
			Prefix: netip.PrefixFrom(gateway, 32), Gateway: gateway,
		}
	}
}

// serviceModel adds a service, its VIPs, and the floating IPs of its pods.
func (w *World) serviceModel(m netvirt.Model, s *service) {
	var places [][]netip.Addr
	for n := range s.places {
		places = append(places, []netip.Addr{nodeAddress(n)})
	}
	m.Add(netvirt.Service{UID: s.uid, Namespace: s.ns, Name: s.name, Affinity: s.affinity, Places: netvirt.NewPlaceList(places...)})
	for _, vip := range s.addresses {
		var endpoints []netip.AddrPort
		near := make([][]netip.AddrPort, s.places)
		for _, p := range s.pods {
			for _, a := range w.addresses(p) {
				if a.Is4() == vip.Is4() {
					e := netip.AddrPortFrom(a, s.port)
					endpoints = append(endpoints, e)
					if p.node < s.places {
						near[p.node] = append(near[p.node], e)
					}
					w.float(m, s, p, a, vip)
				}
			}
		}
		if s.outside && vip.Is4() {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 33, 10}), s.port))
		}
		lists := make([]netvirt.EndpointList, s.places)
		for n := range lists {
			lists[n] = netvirt.NewEndpointList(near[n]...)
			if n == nodes-1 {
				lists[n] = netvirt.NewEndpointList(endpoints...)
			}
		}
		for _, protocol := range s.protocols {
			if vip.Is4() {
				w.gatewayVIPs(m, s, protocol, netvirt.NewEndpointList(endpoints...))
			}
			m.Add(netvirt.ServiceVIP{
				Service: s.uid, Namespace: s.ns, Protocol: protocol, VIP: netip.AddrPortFrom(vip, s.port),
				Endpoints: netvirt.NewEndpointList(endpoints...), Near: netvirt.NewNearList(lists...),
			})
		}
	}
}

// gatewayVIPs adds the ports of a service at gateways. Some are of gateways that do not serve, do not work or do not exist.
func (w *World) gatewayVIPs(m netvirt.Model, s *service, protocol netvirt.Protocol, endpoints netvirt.EndpointList) {
	for n := range s.places {
		v := netvirt.GatewayVIP{
			Service: s.uid, Namespace: s.ns, Gateway: nodeAddress(n), Protocol: protocol, Endpoints: endpoints,
			VIP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + n)}), s.port), Local: s.outside,
		}
		m.Add(v)
		v.VIP, v.Endpoints, v.Waits = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(s.port)}), s.port), "", s.outside
		if v.Restricted = n == 0; v.Restricted && s.affinity > 0 {
			v.Sources = "192.0.2.0/24,203.0.113.7/32"
		}
		m.Add(v)
	}
}

func (w *World) addresses(p *pod) []netip.Addr {
	var all []netip.Addr
	for family, slot := range p.slots {
		if slot != 0 {
			a, _ := w.address(p, family, slot)
			all = append(all, a)
		}
	}
	return all
}

// float adds a floating IP, unless a service with a lower UID has one for the pod.
func (w *World) float(m netvirt.Model, s *service, p *pod, internal, external netip.Addr) {
	f := netvirt.FloatingIP{
		Router: w.vpn(p.ns).Name, Port: netvirt.InterfaceName(p.ns, p.name, "", true), Namespace: p.ns,
		Internal: internal, External: external, ExternalID: s.uid,
	}
	if _, found := m[f.Key()]; !found {
		m.Add(f)
	}
}
