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
	exposures := b.exposures()
	if len(exposures) == 0 {
		return nil
	}
	b.pods = addressesOf(v.Leases)
	var (
		targets = b.acceptedTargets()
		service *coe.Service // that of is about
		of      exposedTargets
		direct  int // endpoints to which nodes lead themselves
	)
	for _, e := range exposures {
		accepted, found := targets[e.service]
		if !found {
			continue
		}
		if e.service != service {
			service, of = e.service, b.exposedTargets(e.service, accepted)
		}
		p := b.exposedPort(e, of)
		if direct+len(p.Direct) > coe.MaxDirectEndpoints {
			p.Direct, p.Sticky = nil, false
		}
		direct += len(p.Direct)
		all = append(all, p)
	}
	return all
}

// Exposure is a port on which nodes answer for a service, and where it leads.
type Exposure struct {
	coe.ExposedPort
	Service *coe.Service
	// All are the IPv4 endpoints on all nodes, sorted.
	All []netip.AddrPort
}

// Exposures returns the ports on which nodes lead to the services of a namespace, in the order of ExposedPorts.
func Exposures(v coe.View, s Settings) []Exposure {
	b := newBuilder(v, s, &mapped{}, nil)
	b.pods = addressesOf(v.Leases)
	return b.allExposures(b.acceptedTargets())
}

// allExposures returns the ports of services with targets.
func (b *builder) allExposures(targets map[*coe.Service][]target) (all []Exposure) {
	var (
		service *coe.Service // that of is about
		of      exposedTargets
	)
	for _, e := range b.exposures() {
		accepted, found := targets[e.service]
		if !found || e.health {
			continue
		}
		if e.service != service {
			service, of = e.service, b.exposedTargets(e.service, accepted)
		}
		all = append(all, Exposure{ExposedPort: b.exposedPort(e, of), Service: e.service, All: b.sortedEndpoints(e, accepted)})
	}
	return all
}

// acceptedTargets returns the targets of the services that the model has: of those that exceed no limit.
func (b *builder) acceptedTargets() map[*coe.Service][]target {
	endpoints := map[string][]*coe.Endpoints{}
	for _, e := range b.Endpoints {
		endpoints[e.Name] = append(endpoints[e.Name], e)
	}
	all := map[*coe.Service][]target{}
	for _, s := range b.Services {
		addresses := slices.DeleteFunc(b.addresses(s), func(a netip.Addr) bool { return !b.claimed(s, a) })
		if s.Excess() != "" || len(addresses) == 0 {
			continue
		}
		targets := b.targets(s, endpoints[s.Name])
		if b.excess(s, addresses, endpoints[s.Name], targets) == "" {
			all[s] = targets
		}
	}
	return all
}

// exposedTargets are the targets of a service, and the endpoints of its ports that were computed before. All
// external addresses of a service have the same.
type exposedTargets struct {
	all []target
	// byNode has the targets that are pods of the namespace, if the service is local.
	byNode map[netip.Addr][]target
	local  map[coe.ServicePort]map[netip.Addr][]netip.AddrPort
	direct map[coe.ServicePort][]netip.AddrPort
}

func (b *builder) exposedTargets(s *coe.Service, targets []target) exposedTargets {
	of := exposedTargets{
		targets, map[netip.Addr][]target{}, map[coe.ServicePort]map[netip.Addr][]netip.AddrPort{}, map[coe.ServicePort][]netip.AddrPort{},
	}
	if !s.Local {
		return of
	}
	for _, t := range targets {
		if l := b.pods[t.addr]; l != nil {
			of.byNode[l.Node] = append(of.byNode[l.Node], t)
		}
	}
	return of
}

// exposedPort returns the record of an exposure of a service with targets.
func (b *builder) exposedPort(e exposure, of exposedTargets) coe.ExposedPort {
	p := coe.ExposedPort{Protocol: e.at.Protocol, Port: e.at.Port, Namespace: b.Namespace}
	if e.health {
		p.Health = &coe.ReadyCount{Service: e.service.Name, Ready: readyByNode(of.byNode)}
		return p
	}
	p.To = netip.AddrPortFrom(e.to, e.port.Port)
	if !e.at.Address.IsUnspecified() {
		p.Address = e.at.Address
	}
	if b.restricts(e.service, p.Address) {
		p.Restricted, p.Sources = true, e.service.SourceRanges
	}
	if p.Local = e.service.Local; p.Local {
		if _, known := of.local[e.port]; !known {
			of.local[e.port] = b.endpointsByNode(e, of.byNode)
		}
		p.Endpoints = of.local[e.port]
		p.Refuses = len(p.Endpoints) == 0 && len(b.sortedEndpoints(e, of.all)) == 0
	} else {
		if _, known := of.direct[e.port]; !known {
			of.direct[e.port] = b.directEndpoints(e, of)
		}
		p.Direct = of.direct[e.port]
	}
	p.Sticky = e.service.Affinity != 0 && (p.Local || len(p.Direct) > 0)
	return p
}

// directEndpoints returns the IPv4 endpoints of a port to which nodes lead clients themselves. There are none if an
// endpoint is not a pod of the namespace: only OVN may lead to other addresses, which judges them like those that
// pods send to. There are none either if there are too many, or if the place of a client decides on the endpoints of
// the cluster address: such a service can exceed a limit of its own, and then leads nowhere.
func (b *builder) directEndpoints(e exposure, of exposedTargets) []netip.AddrPort {
	if e.service.InternalLocal {
		return nil
	}
	list := b.sortedEndpoints(e, of.all)
	if len(list) > coe.MaxExposedEndpoints || slices.ContainsFunc(list, func(a netip.AddrPort) bool { return b.pods[a.Addr()] == nil }) {
		return nil
	}
	return list
}

// sortedEndpoints returns the IPv4 endpoints of a port, each once.
func (b *builder) sortedEndpoints(e exposure, targets []target) []netip.AddrPort {
	list := b.endpoints(e.service, true, e.port, targets)
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
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
		if s.Excess() != "" {
			continue
		}
		b.unreachable(s, to)
		if !to.IsValid() {
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
					"nodes do not lead to all of its external addresses, and nobody reaches load balancer addresses with loadBalancerSourceRanges: "+
						"the external addresses of the namespace have more than %d ports; use another namespace, or remove external addresses", coe.MaxExternalPorts))
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

// unreachable reports that nobody reaches the restricted addresses of a service, because nodes cannot lead there.
// to is its cluster address.
func (b *builder) unreachable(s *coe.Service, to netip.Addr) {
	i := slices.IndexFunc(s.LoadBalancerIPs, func(a netip.Addr) bool {
		return b.restricts(s, a) && (!a.Is4() || !to.IsValid() || len(s.Ports) == 0 || len(s.SourceRanges) > coe.MaxSourceRanges)
	})
	switch {
	case i < 0:
	case len(s.SourceRanges) > coe.MaxSourceRanges:
		b.serviceProblem(s, coe.TooLarge, fmt.Sprintf(
			"nobody reaches its load balancer addresses: it has more than %d loadBalancerSourceRanges; combine them", coe.MaxSourceRanges))
	default:
		b.unenforced("service", s.UID, s.Name, fmt.Sprintf(
			"nobody reaches its load balancer address %s: loadBalancerSourceRanges need an IPv4 address, a port, and an IPv4 cluster IP", s.LoadBalancerIPs[i]))
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

// endpointsByNode returns the IPv4 endpoints of a port, coe.MaxExposedEndpoints on a node at most. A node
// has draining endpoints only if it has no others.
func (b *builder) endpointsByNode(e exposure, targets map[netip.Addr][]target) map[netip.Addr][]netip.AddrPort {
	all := map[netip.Addr][]netip.AddrPort{}
	for node, here := range targets {
		list := b.sortedEndpoints(e, here)
		if list = list[:min(len(list), coe.MaxExposedEndpoints)]; len(list) > 0 {
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
		coe.ExternalAddress:     !addresses && slices.ContainsFunc(s.ExternalIPs, func(a netip.Addr) bool { return !b.restricts(s, a) }),
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
