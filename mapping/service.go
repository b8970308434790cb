package mapping

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// services maps the namespace's services: each address and port, and the
// floating-ip-info of the pods that serve it (spec, "Create Service").
func (b *builder) services() {
	endpoints := map[string][]*coe.Endpoints{}
	for _, e := range b.Endpoints {
		endpoints[e.Name] = append(endpoints[e.Name], e)
	}
	taken := map[vip]*coe.Service{}
	for _, s := range b.Services {
		b.service(s, endpoints[s.Name], taken)
	}
}

type vip struct {
	netvirt.Protocol
	netip.AddrPort
}

// target is where a service leads: an address, with the ports that are known of it.
type target struct {
	addr netip.Addr
	// from has the ports; nil where only the service's own target port tells.
	from *coe.Endpoints
	// draining: it is used for a port and a family that have no other.
	draining bool
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
	targets := b.targets(s, endpoints)
	if excess := b.excess(s, addresses, endpoints, targets); excess != "" {
		b.serviceProblem(s, coe.TooLarge, excess)
		return
	}
	b.rest.Add(netvirt.Service{UID: s.UID, Namespace: b.Namespace, Name: s.Name, Affinity: s.Affinity})
	told := false
	for _, v := range b.vips(s, addresses, targets) {
		key := vip{v.Protocol, v.VIP}
		if !b.holds(s, v.VIP.Addr(), string(v.Protocol), v.VIP.Port()) {
			continue // a refusal tells why, or the address is being claimed
		}
		if other := taken[key]; other != nil {
			if !told { // one is enough: there may be hundreds
				b.serviceProblem(s, coe.AddressTaken, fmt.Sprintf(
					"%s %s is an address of service %s (%s) already", v.Protocol, v.VIP, other.Name, other.UID))
			}
			told = true
			continue
		}
		taken[key] = s
		b.rest.Add(v)
	}
	b.floatingIPs(s, addresses, serving(targets))
}

// excess says which limit the service's endpoints exceed, before they cost anything;
// empty for none. Those of a service that is mapped count in its namespace.
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

// families are IPv4 and IPv6, as netip.Addr.Is4 tells them apart.
var families = [...]bool{true, false}

func countOf(addresses []netip.Addr, is4 bool) (n int) {
	for _, a := range addresses {
		if a.Is4() == is4 {
			n++
		}
	}
	return n
}

// countTargets counts the targets of a family, those of IPv6 twice.
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

// claimed reports whether the service may answer on an address, or on one port of
// it. While it is not refused, it waits for the address.
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

// holds reports whether the service has an address of the pool "services", or the
// namespace has the VIP.
func (b *builder) holds(s *coe.Service, addr netip.Addr, protocol string, port uint16) bool {
	if f := b.ServiceFacts[s.UID]; f != nil && f.Released == 0 && f.Address == addr {
		return true
	}
	return b.VIPs[coe.VIP{Address: addr}] || port != 0 && b.VIPs[coe.VIP{Address: addr, Protocol: protocol, Port: port}]
}

// addresses are those on which the service answers: its cluster address, or
// the one that was chosen for it, first.
func (b *builder) addresses(s *coe.Service) []netip.Addr {
	var addresses []netip.Addr
	add := func(a netip.Addr) {
		if a.IsValid() && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	for _, a := range s.ClusterIPs {
		add(a)
	}
	if f := b.ServiceFacts[s.UID]; f != nil && f.Released == 0 && len(s.ClusterIPs) == 0 {
		add(f.Address)
	}
	for _, a := range s.ExternalIPs {
		add(a)
	}
	return addresses
}

// targets are the service's endpoints: the addresses of its Endpoints, and the
// mapped pods whose uid it lists.
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
		for _, a := range e.Addresses {
			add(target{addr: a, from: e})
		}
		for _, a := range e.Terminating {
			add(target{addr: a, from: e, draining: true})
		}
	}
	for _, uid := range s.PodEndpoints {
		addresses := b.podAddresses(uid)
		if len(addresses) == 0 {
			b.serviceProblem(s, coe.NoEndpoint, fmt.Sprintf(
				"endpoint %s is no pod of namespace %s with a network; send the pod, with its node", uid, b.Namespace))
		}
		for _, a := range addresses {
			targets = append(targets, target{addr: a})
		}
	}
	return targets
}

// serving are the targets that are not draining, or all where all are.
func serving(targets []target) []target {
	ready := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.draining })
	if len(ready) == 0 {
		return targets
	}
	return ready
}

// podAddresses are the addresses of a mapped pod's primary interface.
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

// vips are the service's ports on its addresses. All addresses of a family share the
// list of a port's endpoints. A service without ports leads every port of its address
// to the same port of its endpoints.
func (b *builder) vips(s *coe.Service, addresses []netip.Addr, targets []target) []netvirt.ServiceVIP {
	ports := s.Ports
	if len(ports) == 0 {
		ports = []coe.ServicePort{{Protocol: string(netvirt.TCP)}}
	}
	vips := make([]netvirt.ServiceVIP, 0, len(ports)*len(addresses))
	for _, port := range ports {
		for _, is4 := range families {
			if countOf(addresses, is4) == 0 {
				continue
			}
			endpoints := netvirt.NewEndpointList(b.endpoints(s, is4, port, targets)...)
			for _, addr := range addresses {
				if addr.Is4() == is4 {
					vips = append(vips, netvirt.ServiceVIP{
						Service: s.UID, Namespace: b.Namespace, Protocol: netvirt.Protocol(port.Protocol),
						VIP: netip.AddrPortFrom(addr, port.Port), Endpoints: endpoints,
					})
				}
			}
		}
	}
	return vips
}

// endpoints are where a port of the service leads on its addresses of a family: the
// targets of that family that serve the port, those that are draining only if there
// is no other.
func (b *builder) endpoints(s *coe.Service, is4 bool, port coe.ServicePort, targets []target) []netip.AddrPort {
	var (
		ready, draining []netip.AddrPort
		number          uint16
		found           bool
		from            *coe.Endpoints // of which number and found are
	)
	for i, t := range targets {
		if i == 0 || t.from != from {
			from = t.from
			number, found = portOf(from, port, len(s.Ports) <= 1)
		}
		if t.addr.Is4() != is4 {
			continue
		}
		switch {
		case !found && t.from != nil && t.from.PortsByName: // its source says that it does not serve this port
		case !found:
			b.serviceProblem(s, coe.NoPort, fmt.Sprintf(
				"port %q: endpoint %s has no port for target-port %q; send a number, or endpoint-ports with that name",
				port.Name, t.addr, port.TargetPort))
		case t.draining:
			draining = append(draining, netip.AddrPortFrom(t.addr, number))
		default:
			ready = append(ready, netip.AddrPortFrom(t.addr, number))
		}
	}
	if len(ready) == 0 {
		return draining
	}
	return ready
}

// portOf is the port of every address of an Endpoints, nil for none, for a port of the
// service: the endpoint port of the same name, or the only one there is, else what the
// service's target port says. Where ports are by name, the name alone decides.
func portOf(e *coe.Endpoints, p coe.ServicePort, only bool) (uint16, bool) {
	if p.Port == 0 {
		return 0, true
	}
	if e == nil {
		e = &coe.Endpoints{}
	}
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

// floatingIPs adds an entry for each pod that serves the service. Its key is the
// pod's address, so a pod of several services shows the one of the lowest uid.
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
		if _, shown := b.rest[f.Key()]; !shown {
			b.rest.Add(f)
		}
	}
}
