package service

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

type vip struct {
	netvirt.Protocol
	netip.AddrPort
}

// target is an address that a service leads to.
type target struct {
	addr netip.Addr
	// from has the ports of the address; nil if only the service's target port names one.
	from *coe.Endpoints
	// draining: it serves a port only if no other target of its family does.
	draining bool
	place    *coe.Place // nil if it is not known
}

func (b *builder) service(s *coe.Service, endpoints []*coe.Endpoints, taken map[vip]*coe.Service) {
	if refusal, refused := b.ServiceRefusals[s.UID]; refused {
		b.serviceProblem(s, refusal.Reason, refusal.Message)
	}
	if excess := s.Excess(); excess != "" {
		b.serviceProblem(s, coe.TooLarge, excess)
		return
	}
	addresses := slices.DeleteFunc(b.addresses(s), func(a netip.Addr) bool { return !b.claimed(s, a) })
	if len(addresses) == 0 {
		return
	}
	targets, before := b.targets(s, endpoints), b.backends
	if excess := b.excess(s, addresses, endpoints, targets); excess != "" {
		b.serviceProblem(s, coe.TooLarge, excess)
		return
	}
	placed := b.dependsOnPlace(s, endpoints)
	offers := b.offers(s, addresses, targets, placed)
	var places netvirt.PlaceList
	if placed {
		var excess string
		places, excess = b.divide(offers)
		switch {
		case excess == "":
		case s.InternalLocal: // clients would reach what the policy keeps from them
			b.backends = before
			b.serviceProblem(s, coe.TooLarge, excess)
			return
		default: // a hint is only a preference
			b.unenforced(s, "the hints of its endpoints have no effect: "+excess)
		}
	}
	b.accepted[s] = targets
	b.model.Add(netvirt.Service{UID: s.UID, Namespace: b.Namespace, Name: s.Name, Affinity: s.Affinity, Places: places})
	reported := false
	for _, o := range offers {
		v := o.ServiceVIP
		key := vip{v.Protocol, v.VIP}
		if !b.holds(s, v.VIP.Addr(), string(v.Protocol), v.VIP.Port()) {
			continue // refused, or the address is being claimed
		}
		if other := taken[key]; other != nil {
			if !reported { // one problem is enough: there may be hundreds
				b.addressTaken(s, coe.VIP{Address: v.VIP.Addr(), Protocol: string(v.Protocol), Port: v.VIP.Port()}, other)
			}
			reported = true
			continue
		}
		taken[key] = s
		if !b.restricts(s, v.VIP.Addr()) { // nodes alone lead there
			b.model.Add(v)
		}
	}
	b.floatingIPs(s, slices.DeleteFunc(addresses, func(a netip.Addr) bool { return b.restricts(s, a) }), serving(targets))
}

// addressTaken reports that an address and port of a service belong to another service of the namespace.
func (b *builder) addressTaken(s *coe.Service, at coe.VIP, owner *coe.Service) {
	b.serviceProblem(s, coe.AddressTaken, fmt.Sprintf(
		"%s %s is already an address of service %s (%s)", at.Protocol, netip.AddrPortFrom(at.Address, at.Port), owner.Name, owner.UID))
}

// excess returns a message if the service's endpoints exceed a limit, else "". It counts
// them before they are mapped, so that they cost nothing. If they exceed no limit, it adds
// them to the namespace's count.
func (b *builder) excess(s *coe.Service, addresses []netip.Addr, endpoints []*coe.Endpoints, targets []target) string {
	for _, e := range endpoints {
		if len(e.Ports) > coe.MaxServicePorts {
			return fmt.Sprintf("its endpoints have more than %d ports; split the service", coe.MaxServicePorts)
		}
	}
	backends := 0
	for _, is4 := range families {
		backends += countOf(addresses, is4) * countTargets(targets, is4) * max(len(s.Ports), 1)
	}
	if backends > coe.MaxBackends {
		return fmt.Sprintf("its ports times its addresses times its endpoints are more than %d; split the service, or remove external addresses", coe.MaxBackends)
	}
	if b.backends+backends > coe.MaxNamespaceBackends {
		return fmt.Sprintf("it and the services of the namespace before it have more than %d endpoints; use another namespace, or remove services", coe.MaxNamespaceBackends)
	}
	b.backends += backends
	return ""
}

// families are IPv4 and IPv6, as values of netip.Addr.Is4.
var families = [...]bool{true, false}

func countOf(addresses []netip.Addr, is4 bool) (n int) {
	for _, a := range addresses {
		if a.Is4() == is4 {
			n++
		}
	}
	return n
}

// countTargets counts the targets of a family. A target of IPv6 counts twice.
func countTargets(targets []target, is4 bool) (n int) {
	for _, t := range targets {
		if t.addr.Is4() == is4 {
			n++
		}
	}
	if !is4 {
		n *= 2
	}
	return n
}

func (b *builder) serviceProblem(s *coe.Service, reason coe.Reason, message string) {
	b.problems = append(b.problems, coe.Problem{
		Namespace: b.Namespace, Kind: "service", UID: s.UID, Name: s.Name, Reason: reason, Message: message,
	})
}

func (b *builder) unenforced(s *coe.Service, message string) {
	b.serviceProblem(s, coe.NotEnforced, message)
}

// claimed reports whether the service may answer on an address, or on one port of it. If
// the address is neither claimed nor refused yet, it adds a problem.
func (b *builder) claimed(s *coe.Service, addr netip.Addr) bool {
	if b.holds(s, addr, "", 0) || slices.ContainsFunc(s.Ports, func(p coe.ServicePort) bool {
		return b.holds(s, addr, p.Protocol, p.Port)
	}) {
		return true
	}
	if _, refused := b.ServiceRefusals[s.UID]; !refused {
		b.serviceProblem(s, coe.Waiting, fmt.Sprintf("address %s is being claimed", addr))
	}
	return false
}

// holds reports whether the service has the address from the pool "services", or the
// namespace has claimed the VIP. port 0 asks for the whole address.
func (b *builder) holds(s *coe.Service, addr netip.Addr, protocol string, port uint16) bool {
	if f := b.ServiceFacts[s.UID]; f != nil && f.Released == 0 && f.Address == addr {
		return true
	}
	return b.VIPs[coe.VIP{Address: addr}] || port != 0 && b.VIPs[coe.VIP{Address: addr, Protocol: protocol, Port: port}]
}

// addresses returns the addresses of the service: the cluster addresses, or the address
// that was chosen for it, and then the external ones.
func (b *builder) addresses(s *coe.Service) []netip.Addr {
	var addresses []netip.Addr
	add := func(a netip.Addr) {
		if a.IsValid() && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	for _, a := range b.clusterAddresses(s) {
		add(a)
	}
	for _, a := range s.ExternalIPs {
		add(a)
	}
	return addresses
}

// clusterAddresses returns the cluster addresses of the service, or the address that was chosen
// for it.
func (b *builder) clusterAddresses(s *coe.Service) []netip.Addr {
	if f := b.ServiceFacts[s.UID]; f != nil && f.Released == 0 && len(s.ClusterIPs) == 0 {
		return []netip.Addr{f.Address}
	}
	return s.ClusterIPs
}

// targets returns the service's targets: the addresses of its Endpoints, and the addresses
// of the mapped pods whose UID it lists.
func (b *builder) targets(s *coe.Service, endpoints []*coe.Endpoints) []target {
	var targets []target
	add := func(t target) {
		if !coe.Routable(t.addr) {
			b.serviceProblem(s, coe.AddressInvalid, fmt.Sprintf(
				"endpoint %s is a loopback, link-local, multicast or unspecified address; send another", t.addr))
			return
		}
		targets = append(targets, t)
	}
	for _, e := range endpoints {
		for i, a := range e.Addresses {
			add(target{addr: a, from: e, place: e.Place(i)})
		}
		for i, a := range e.Terminating {
			add(target{addr: a, from: e, draining: true, place: e.Place(len(e.Addresses) + i)})
		}
	}
	for _, uid := range s.PodEndpoints {
		addresses := b.podAddresses(uid)
		if len(addresses) == 0 {
			b.serviceProblem(s, coe.NoEndpoint, fmt.Sprintf(
				"endpoint %s is not a pod of namespace %s with a network; send the pod, with its node", uid, b.Namespace))
		}
		for _, a := range addresses {
			targets = append(targets, target{addr: a})
		}
	}
	return targets
}

// serving returns the targets that are not draining, or all if all are draining.
func serving(targets []target) []target {
	ready := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.draining })
	if len(ready) == 0 {
		return targets
	}
	return ready
}

// podAddresses returns the addresses of a mapped pod's primary interface.
func (b *builder) podAddresses(uid string) []netip.Addr {
	i, found := slices.BinarySearchFunc(b.Pods, uid, func(p *coe.Pod, uid string) int {
		return strings.Compare(p.UID, uid)
	})
	if !found {
		return nil
	}
	var addresses []netip.Addr
	for _, i := range b.Pods[i].AllInterfaces() {
		l := b.Leases.Get(coe.LeaseKey{PodUID: uid, InterfaceUID: i.UID})
		if l == nil || !l.Primary {
			continue
		}
		for _, a := range l.Addresses {
			if b.pods[a.Address] == l {
				addresses = append(addresses, a.Address)
			}
		}
	}
	return addresses
}

// offers returns the service's ports on its addresses. All addresses of a family share the
// endpoint list of a port. A service without ports leads every port of its addresses to
// the same port of its endpoints. placed: the place of the client decides on the endpoints.
func (b *builder) offers(s *coe.Service, addresses []netip.Addr, targets []target, placed bool) []offer {
	ports := s.Ports
	if len(ports) == 0 {
		ports = []coe.ServicePort{{Protocol: string(netvirt.TCP)}}
	}
	offers := make([]offer, 0, len(ports)*len(addresses))
	for _, port := range ports {
		for _, is4 := range families {
			if countOf(addresses, is4) == 0 {
				continue
			}
			endpoints := netvirt.NewEndpointList(b.endpoints(s, is4, port, targets)...)
			var internal, external *choice
			if placed {
				internal, external = b.choices(s, is4, port, targets)
			}
			for _, addr := range addresses {
				if addr.Is4() != is4 {
					continue
				}
				o := offer{choice: external, ServiceVIP: netvirt.ServiceVIP{
					Service: s.UID, Namespace: b.Namespace, Protocol: netvirt.Protocol(port.Protocol),
					VIP: netip.AddrPortFrom(addr, port.Port), Endpoints: endpoints,
				}}
				if placed && slices.Contains(b.clusterAddresses(s), addr) {
					o.choice = internal
				}
				offers = append(offers, o)
			}
		}
	}
	return offers
}

// endpoints returns the endpoints of a port for one family: the targets of the family
// that serve the port. It returns draining targets only if there are no others.
func (b *builder) endpoints(s *coe.Service, is4 bool, port coe.ServicePort, targets []target) []netip.AddrPort {
	var ready, draining []netip.AddrPort
	for t, number := range b.served(s, is4, port, targets) {
		if t.draining {
			draining = append(draining, netip.AddrPortFrom(t.addr, number))
		} else {
			ready = append(ready, netip.AddrPortFrom(t.addr, number))
		}
	}
	if len(ready) == 0 {
		return draining
	}
	return ready
}

// served returns the targets of a family that serve a port, each with its own port.
func (b *builder) served(s *coe.Service, is4 bool, port coe.ServicePort, targets []target) iter.Seq2[*target, uint16] {
	return func(yield func(*target, uint16) bool) {
		var (
			number uint16
			found  bool
			from   *coe.Endpoints // that number and found were computed for
			circle bool           // is reported
		)
		for i := range targets {
			t := &targets[i]
			if i == 0 || t.from != from {
				from = t.from
				number, found = portOf(from, port, len(s.Ports) <= 1)
			}
			if t.addr.Is4() != is4 {
				continue
			}
			switch {
			case !found && t.from != nil && t.from.PortsByName: // it does not serve this port
			case !found:
				b.serviceProblem(s, coe.NoPort, fmt.Sprintf(
					"port %q: endpoint %s has no port for target-port %q; send a number, or endpoint-ports with that name",
					port.Name, t.addr, port.TargetPort))
			case b.mayCircle(port, netip.AddrPortFrom(t.addr, number)):
				if !circle { // one problem is enough: there may be hundreds
					b.unenforced(s, fmt.Sprintf(
						"port %q does not lead to endpoints such as %s: a port in --node-ports at a further address of a node can lead packets in a circle; use the first internal address of the node, or another port",
						port.Name, netip.AddrPortFrom(t.addr, number)))
				}
				circle = true
			case !yield(t, number):
				return
			}
		}
	}
}

// mayCircle reports whether an endpoint of a port with a node port may be a node port itself, at a further address of a
// node. A packet to it leaves the network of the pods and is led to a service again, which may be the same one. At the
// first internal address of a node it reaches the node by its management port, and is not led again.
func (b *builder) mayCircle(port coe.ServicePort, endpoint netip.AddrPort) bool {
	if port.NodePort == 0 || !b.VIPs[coe.PortOnNodes(port.Protocol, port.NodePort)] || !b.NodePorts.Contains(endpoint.Port()) {
		return false
	}
	if b.furtherIPs == nil {
		b.furtherIPs = map[netip.Addr]bool{}
		for _, n := range b.Nodes {
			for _, a := range n.FurtherIPs() {
				b.furtherIPs[a] = b.Nodes[a] == nil
			}
		}
	}
	return b.furtherIPs[endpoint.Addr()] && b.pods[endpoint.Addr()] == nil
}

// portOf returns the port of the endpoints' addresses for a port of the service: the
// endpoint port of the same name, or the only endpoint port, else the service's target
// port. If PortsByName is set, only the name counts. e is nil if the endpoints have no
// ports of their own; only reports whether the service has at most one port.
func portOf(e *coe.Endpoints, p coe.ServicePort, only bool) (uint16, bool) {
	if p.Port == 0 {
		return 0, true
	}
	e = cmp.Or(e, &coe.Endpoints{})
	for _, port := range e.Ports {
		if port.Protocol == p.Protocol && (port.Name == p.Name || only && len(e.Ports) == 1 && !e.PortsByName) {
			return port.Port, true
		}
	}
	if e.PortsByName {
		return 0, false
	}
	if p.TargetPort == "" {
		return p.Port, true
	}
	if number, err := strconv.ParseUint(p.TargetPort, 10, 16); err == nil {
		return uint16(number), true
	}
	for _, port := range e.Ports {
		if port.Protocol == p.Protocol && port.Name == p.TargetPort {
			return port.Port, true
		}
	}
	return 0, false
}

// floatingIPs adds an entry for each pod that serves the service. The key is the pod's
// address, so a pod of several services has the entry of the service with the lowest UID.
func (b *builder) floatingIPs(s *coe.Service, addresses []netip.Addr, targets []target) {
	for _, t := range targets {
		lease := b.pods[t.addr]
		external := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is4() == t.addr.Is4() })
		if lease == nil || external < 0 {
			continue
		}
		f := netvirt.FloatingIP{
			Router: b.VPN.Name, Port: lease.Name, Namespace: b.Namespace,
			Internal: t.addr, External: addresses[external], ExternalID: s.UID,
		}
		if _, shown := b.model[f.Key()]; !shown {
			b.model.Add(f)
		}
	}
}
