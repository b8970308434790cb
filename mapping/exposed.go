package mapping

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// ExposedPorts returns the ports on which nodes answer for the services of a namespace: ports of nodes, of
// external addresses, and of health checks. Like the model it is pure. Agents of nodes need it, and no
// backend does.
func ExposedPorts(v coe.View, s Settings) (all []coe.ExposedPort) {
	b := newBuilder(v, s, &mapped{}, nil)
	var leases map[netip.Addr]*coe.Lease // nil until a service needs it
	endpoints := map[string][]*coe.Endpoints{}
	for _, e := range v.Endpoints {
		endpoints[e.Name] = append(endpoints[e.Name], e)
	}
	var (
		service *coe.Service // that byNode was computed for
		byNode  map[netip.Addr][]target
	)
	for _, e := range b.exposures() {
		if e.service.Local && e.service != service {
			if leases == nil {
				leases = addressesOf(v.Leases)
			}
			service, byNode = e.service, b.targetsByNode(e.service, e.to, endpoints[e.service.Name], leases)
		}
		all = append(all, b.exposedPort(e, byNode))
	}
	return all
}

// exposedPort returns the record of an exposure. byNode has the targets of a local service.
func (b *builder) exposedPort(e exposure, byNode map[netip.Addr][]target) coe.ExposedPort {
	p := coe.ExposedPort{Protocol: e.at.Protocol, Port: e.at.Port, Namespace: b.Namespace}
	if e.health {
		p.Health = &coe.ReadyCount{Service: e.service.Name, Ready: readyByNode(byNode)}
		return p
	}
	p.To = netip.AddrPortFrom(e.to, e.port.Port)
	if !e.at.Address.IsUnspecified() {
		p.Address = e.at.Address
	}
	if b.restricts(e.service, p.Address) {
		p.Restricted, p.Sources = true, e.service.SourceRanges
	}
	if e.service.Local {
		p.Local, p.Sticky, p.Endpoints = true, e.service.Affinity != 0, b.endpointsByNode(e, byNode)
	}
	return p
}

// exposure is a port of a service that nodes answer on.
type exposure struct {
	service *coe.Service
	at      coe.VIP    // a port of nodes, or of an external address
	to      netip.Addr // the cluster address of the service
	port    coe.ServicePort
	health  bool // nodes answer health checks themselves, and port is zero
}

// exposures returns the node ports and the ports of external addresses that the namespace has claimed. A
// port belongs to the first service that has it, and is a problem of the others.
func (b *builder) exposures() (all []exposure) {
	owners, external := map[coe.VIP]*coe.Service{}, 0
	for _, s := range b.Services {
		to := b.clusterAddress4(s)
		if s.Excess() != "" || !to.IsValid() {
			continue
		}
		for e := range b.nodePortsOf(s) {
			if owner := owners[e.at]; owner != nil {
				b.serviceProblem(s, coe.AddressTaken, fmt.Sprintf(
					"node port %s %d belongs to service %s (%s); choose another port for one of the two services", e.at.Protocol, e.at.Port, owner.Name, owner.UID))
				continue
			}
			owners[e.at], e.to = s, to
			all = append(all, e)
		}
		reported := false
		for e := range b.externalPortsOf(s) {
			if owner := owners[e.at]; owner != nil {
				if !reported { // one problem is enough: there may be hundreds
					b.addressTaken(s, e.at, owner)
				}
				reported = true
				continue
			}
			if external++; external > coe.MaxExternalPorts {
				b.serviceProblem(s, coe.TooLarge, fmt.Sprintf(
					"traffic from outside does not reach its external addresses: the external addresses of the namespace have more than %d ports; use another namespace, or remove external addresses",
					coe.MaxExternalPorts))
				break
			}
			owners[e.at], e.to = s, to
			all = append(all, e)
		}
	}
	return all
}

// nodePortsOf returns the claimed node ports of a service.
func (b *builder) nodePortsOf(s *coe.Service) iter.Seq[exposure] {
	return func(yield func(exposure) bool) {
		if !b.servesNodePorts() {
			return
		}
		for _, p := range s.Ports {
			at := coe.PortOnNodes(p.Protocol, p.NodePort)
			if p.NodePort != 0 && b.VIPs[at] && !yield(exposure{service: s, at: at, port: p}) {
				return
			}
		}
		if at := coe.PortOnNodes("tcp", s.HealthPort); s.Local && s.HealthPort != 0 && b.VIPs[at] {
			yield(exposure{service: s, at: at, health: true})
		}
	}
}

// externalPortsOf returns the claimed ports of a service's external addresses, if nodes lead to them. A
// cluster address of the namespace is not external: nodes route it.
func (b *builder) externalPortsOf(s *coe.Service) iter.Seq[exposure] {
	return func(yield func(exposure) bool) {
		if !b.ManagementPorts {
			return
		}
		for _, a := range s.ExternalIPs {
			if b.restricts(s, a) && len(s.SourceRanges) > coe.MaxSourceRanges {
				b.serviceProblem(s, coe.TooLarge, fmt.Sprintf(
					"nobody reaches its load balancer addresses: it has more than %d loadBalancerSourceRanges; combine them", coe.MaxSourceRanges))
				continue
			}
			for _, p := range s.Ports {
				at := coe.VIP{Address: a, Protocol: p.Protocol, Port: p.Port}
				if a.Is4() && b.VIPs[at] && !yield(exposure{service: s, at: at, port: p}) {
					return
				}
			}
		}
	}
}

// restricts reports whether only some clients reach an address of a service. The nodes lead all clients to it,
// also pods: a load balancer of OVN does not know sources.
func (b *builder) restricts(s *coe.Service, a netip.Addr) bool {
	return b.ManagementPorts && s.Restricted && slices.Contains(s.LoadBalancerIPs, a)
}

// clusterAddress4 returns the IPv4 cluster address of a service; zero if it has none.
func (b *builder) clusterAddress4(s *coe.Service) netip.Addr {
	for _, a := range b.clusterAddresses(s) {
		if a.Is4() && b.holds(s, a, "", 0) {
			return a
		}
	}
	return netip.Addr{}
}

// addressesOf returns the leases of interfaces by address.
func addressesOf(leases coe.Leases) map[netip.Addr]*coe.Lease {
	all := make(map[netip.Addr]*coe.Lease, len(leases))
	for _, l := range leases {
		for _, a := range l.Addresses {
			if l.Released == 0 {
				all[a.Address] = l
			}
		}
	}
	return all
}

// targetsByNode returns the targets of a service that are pods of the namespace; none if they exceed a
// limit.
func (b *builder) targetsByNode(s *coe.Service, to netip.Addr, endpoints []*coe.Endpoints, leases map[netip.Addr]*coe.Lease) map[netip.Addr][]target {
	targets := b.targets(s, endpoints)
	if b.excess(s, []netip.Addr{to}, endpoints, targets) != "" {
		return nil
	}
	byNode := map[netip.Addr][]target{}
	for _, t := range targets {
		if l := leases[t.addr]; l != nil {
			byNode[l.Node] = append(byNode[l.Node], t)
		}
	}
	return byNode
}

// endpointsByNode returns the IPv4 endpoints of a port, coe.MaxLocalEndpoints on a node at most. A node
// has draining endpoints only if it has no others.
func (b *builder) endpointsByNode(e exposure, targets map[netip.Addr][]target) map[netip.Addr][]netip.AddrPort {
	all := map[netip.Addr][]netip.AddrPort{}
	for node, here := range targets {
		list := b.endpoints(e.service, true, e.port, here)
		slices.SortFunc(list, netip.AddrPort.Compare)
		list = slices.Compact(list)
		if list = list[:min(len(list), coe.MaxLocalEndpoints)]; len(list) > 0 {
			all[node] = list
		}
	}
	return all
}

// readyByNode returns how many ready IPv4 targets each node has.
func readyByNode(targets map[netip.Addr][]target) map[netip.Addr]int {
	all := map[netip.Addr]int{}
	for node, here := range targets {
		ready := map[netip.Addr]bool{}
		for _, t := range here {
			if t.addr.Is4() && !t.draining {
				ready[t.addr] = true
			}
		}
		if len(ready) > 0 {
			all[node] = len(ready)
		}
	}
	return all
}

// unserved returns the settings of a service about clients outside the cluster that have no effect.
func (b *builder) unserved(s *coe.Service) (out coe.Ignored) {
	reachable := slices.ContainsFunc(b.clusterAddresses(s), netip.Addr.Is4)
	ports, addresses := reachable && b.servesNodePorts(), reachable && b.ManagementPorts && len(s.Ports) > 0
	exposes := slices.ContainsFunc(s.Ports, func(p coe.ServicePort) bool { return p.NodePort != 0 })
	for ignored, is := range map[coe.Ignored]bool{
		coe.NodePort:            exposes && !ports,
		coe.ExternalAddress:     len(s.ExternalIPs) > 0 && !addresses,
		coe.ExternalPolicyLocal: s.Local && (!exposes || !ports) && (len(s.ExternalIPs) == 0 || !addresses),
		coe.HealthCheck:         s.Local && s.HealthPort != 0 && !ports,
		coe.SourceRanges:        s.Restricted && !b.ManagementPorts,
	} {
		if is {
			out |= ignored
		}
	}
	return out
}
