package nodeservices

import (
	"net/netip"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// leads reports whether the node leads others to services, which needs an edge address as source. If namespaces are isolated, it leads
// only if the network does not.
func (s *Services) leads(place *uplink.Place) bool {
	return (place.Edge.IsValid() || place.IPv6.Edge.IsValid()) && (!place.Isolated || s.balances(place))
}

// placeOfPorts returns where a node is for the ports of services and pods.
func (s *Services) placeOfPorts(place *uplink.Place) nodeports.Place {
	at := nodeports.Place{
		Inside: slices.Concat(place.Pods, place.Services), HostPorts: s.servesHostPorts(place), Isolated: place.Isolated, Balances: s.balances(place),
	}
	if place.Isolated && s.leads(place) {
		at.IPv4.Edge = place.Edge
	}
	if place.Isolated {
		return at
	}
	at.IPv4, at.IPv6 = addressesOf(place.IPv4()), addressesOf(place.IPv6)
	if place.Node.Is4() {
		at.IPv4.Internal = place.Node
	} else {
		at.IPv6.Internal = place.Node
	}
	for _, g := range place.Gateways {
		if g.Addr().Is4() {
			at.IPv4.ByGateways = append(at.IPv4.ByGateways, g)
		} else {
			at.IPv6.ByGateways = append(at.IPv6.ByGateways, g)
		}
	}
	return at
}

func addressesOf(in uplink.PlaceAddresses) nodeports.Addresses {
	return nodeports.Addresses{Edge: in.Edge, Network: netip.PrefixFrom(in.Address, in.Length).Masked(), Node: in.Address}
}

// balances reports whether the node leads its pods to services. While a cluster moves from OVN to OpenDaylight, nodes with OVN
// get the ports for that too.
func (s *Services) balances(place *uplink.Place) bool {
	return s.cfg.OpenDaylight && place.WayOut != nil
}

// routes reports whether the node may lead to a port. A cluster address must be in a range of services: a tenant could claim
// any other address, and get what nodes send there.
func routes(place *uplink.Place, e *uplink.ExposedPort) bool {
	return e.External != e.Address || slices.ContainsFunc(place.Services, func(p netip.Prefix) bool { return p.Contains(e.Address) })
}

// exposedPort returns a port on which a node answers for a service.
func (s *Services) exposedPort(e *uplink.ExposedPort, place *uplink.Place) nodeports.Port {
	p := nodeports.Port{
		Address: e.External, Protocol: e.Protocol, Number: e.Port, Service: netip.AddrPortFrom(e.Address, e.ServicePort), Local: e.Local, Refuses: e.Refuses, Affinity: time.Duration(e.Affinity) * time.Second,
		Restricted: e.Restricted, Sources: e.Sources,
	}
	if !p.Address.IsValid() {
		p.Address = netip.IPv4Unspecified()
	}
	if slices.ContainsFunc(e.Sources, func(s netip.Prefix) bool { return s.Contains(place.Node) && s.Addr().Is4() == p.Address.Is4() }) {
		// The node itself may be a client. If a load balancer gives it the address, that is its source.
		p.Sources = append(slices.Clone(p.Sources), netip.PrefixFrom(e.External, e.External.BitLen()))
	}
	for _, to := range e.Endpoints {
		p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(to.IP, to.Port))
	}
	if !s.balances(place) && !p.Local && slices.ContainsFunc(p.Endpoints, func(a netip.AddrPort) bool { return !inside(place, a.Addr()) || s.cfg.OfDatabase(a.Port()) }) {
		p.Endpoints = nil // the pod network knows the way, and pods must not reach ports of databases through the node
	}
	return p
}

// inside reports whether the node routes an address to the pod network because pods can have it.
func inside(place *uplink.Place, a netip.Addr) bool {
	return slices.ContainsFunc(place.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
}

// put adds or changes a port that the bridge reports.
func (s *Services) put(e *uplink.ExposedPort, place *uplink.Place) {
	before := s.own[e.Key()]
	now := s.exposedPorts(e, place)
	for _, p := range before {
		if !slices.ContainsFunc(now, func(o nodeports.Port) bool { return o.Address == p.Address && o.Inside == p.Inside }) {
			s.ports.Remove(p)
		}
	}
	for _, p := range now {
		s.ports.Put(p)
	}
	s.putPodPort(e, place)
}

// remove removes a port that the bridge reports no more.
func (s *Services) remove(e *uplink.ExposedPort, place *uplink.Place) {
	s.removePodPort(e, place)
	if !e.Own && !e.Inside {
		s.ports.Remove(s.exposedPort(e, place))
		return
	}
	for _, p := range s.own[e.Key()] {
		s.ports.Remove(p)
	}
	delete(s.own, e.Key())
}

// exposedPorts returns the ports to which a node leads because of one that the bridge reports. It notes those for the
// node's own programs, and those for clients inside the cluster.
func (s *Services) exposedPorts(e *uplink.ExposedPort, place *uplink.Place) (all []nodeports.Port) {
	if routes(place, e) {
		all = append(all, s.exposedPort(e, place))
	}
	switch {
	case e.Own:
		all = s.ownPorts(all, e, place)
	case e.Inside:
		all = s.insidePorts(all, e, place)
	default:
		return all
	}
	s.own[e.Key()] = all
	return all
}

// ownPorts returns the ports for the node's own programs that one from the bridge becomes. If nodes balance, others lead them.
func (s *Services) ownPorts(of []nodeports.Port, e *uplink.ExposedPort, place *uplink.Place) (all []nodeports.Port) {
	if s.balances(place) {
		return nil
	}
	for _, p := range of {
		p.Own = true
		if p.Local {
			all = append(all, p)
			continue
		}
		for p.Address, p.Endpoints = range atNodes(p.Endpoints, e, place.Node) {
			all = append(all, p)
		}
	}
	return all
}

// insidePorts returns the ports for clients inside the cluster that one from the bridge becomes, if nodes balance.
//
// A program that asks the first internal address of its node is led to the node port of the node that has the endpoint, and the endpoint sees
// this address. A pod on another node would not answer it by the network of the pods, which does not route it.
func (s *Services) insidePorts(of []nodeports.Port, e *uplink.ExposedPort, place *uplink.Place) (all []nodeports.Port) {
	if !s.balances(place) {
		return nil
	}
	for _, p := range of {
		p.Inside = true
		all = append(all, p)
		if !p.Address.IsUnspecified() || p.Address.Is4() != place.Node.Is4() {
			continue
		}
		p.Inside, p.Own, p.Address, p.Endpoints = false, true, place.Node, slices.Clone(p.Endpoints)
		for i, to := range e.Endpoints {
			if to.Node != place.Node && to.Node.Is4() == place.Node.Is4() {
				p.Endpoints[i] = netip.AddrPortFrom(to.Node, p.Number)
			}
		}
		all = append(all, p)
	}
	return all
}

// atNodes returns the endpoints of a port from the bridge by the address of the node that programs ask: those on the node,
// but all for the own node, if the port has all. They have the family of the address.
func atNodes(endpoints []netip.AddrPort, e *uplink.ExposedPort, own netip.Addr) map[netip.Addr][]netip.AddrPort {
	at := map[netip.Addr][]netip.AddrPort{}
	for i, to := range endpoints {
		if node := e.Endpoints[i].Node; node != own {
			at[node] = append(at[node], to)
		}
		if e.Every && own.Is4() == to.Addr().Is4() {
			at[own] = append(at[own], to)
		}
	}
	return at
}
