package mapping

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// ExposedPorts returns the ports on which nodes answer for the services of a namespace: ports of nodes, of
// external addresses, of cluster addresses if nodes balance, and of health checks. Like the model it is pure. Agents of nodes need it, and no
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
		if !b.nodesBalance() { // else nothing else leads to endpoints
			if direct+len(p.Direct) > coe.MaxDirectEndpoints {
				p.Direct, p.Sticky = nil, false
			}
			direct += len(p.Direct)
		}
		all = append(all, p)
	}
	return all
}

// Exposure is a port on which nodes answer for a service, and where it leads.
type Exposure struct {
	coe.ExposedPort
	Service *coe.Service
	// All are the endpoints on all nodes, sorted.
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
	local  map[portOfFamily]map[netip.Addr][]netip.AddrPort
	direct map[portOfFamily][]netip.AddrPort
}

type portOfFamily struct {
	coe.ServicePort
	is4 bool
	// cluster is set for a port of the cluster address, which can lead elsewhere.
	cluster bool
}

func (b *builder) exposedTargets(s *coe.Service, targets []target) exposedTargets {
	of := exposedTargets{
		targets, map[netip.Addr][]target{}, map[portOfFamily]map[netip.Addr][]netip.AddrPort{}, map[portOfFamily][]netip.AddrPort{},
	}
	if !s.Local && (!s.InternalLocal || !b.nodesBalance()) {
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
		p.Health = &coe.ReadyCount{Service: e.service.Name, Ready: b.readyByNode(of.byNode)}
		return p
	}
	p.To = netip.AddrPortFrom(e.to, e.port.Port)
	if e.at.Address != netip.IPv4Unspecified() {
		p.Address = e.at.Address
	}
	port := portOfFamily{e.port, e.to.Is4(), e.cluster}
	if b.restricts(e.service, p.Address) {
		p.Restricted, p.Sources = true, e.service.SourceRanges
	}
	p.Local = e.service.Local
	if e.cluster {
		p.Local = e.service.InternalLocal
	}
	if p.Local {
		if _, known := of.local[port]; !known {
			of.local[port] = b.endpointsByNode(e, of.byNode)
		}
		p.Endpoints = of.local[port]
		p.Refuses = len(p.Endpoints) == 0 && len(b.sortedEndpoints(e, of.all)) == 0
	} else {
		if _, known := of.direct[port]; !known {
			of.direct[port] = b.directEndpoints(e, of)
		}
		p.Direct = of.direct[port]
	}
	p.Sticky = e.service.Affinity != 0 && (p.Local || len(p.Direct) > 0)
	return p
}

// directEndpoints returns the endpoints of a port to which nodes lead clients themselves. There are none if an
// endpoint is not a pod of the namespace: only OVN may lead to other addresses, which judges them like those that
// pods send to. There are none either if there are too many, or if the place of a client decides on the endpoints of
// the cluster address: such a service can exceed a limit of its own, and then leads nowhere. If nodes balance, nobody else
// does: a cluster address leads to all endpoints, or as many as a node can have.
func (b *builder) directEndpoints(e exposure, of exposedTargets) []netip.AddrPort {
	if e.service.InternalLocal && !b.nodesBalance() {
		return nil
	}
	list := b.sortedEndpoints(e, of.all)
	some := list[:min(len(list), coe.MaxExposedEndpoints)]
	if e.cluster {
		return some
	}
	if b.nodesBalance() {
		list = some
	}
	if len(list) > coe.MaxExposedEndpoints || slices.ContainsFunc(list, func(a netip.AddrPort) bool { return b.pods[a.Addr()] == nil }) {
		return nil
	}
	return list
}

// sortedEndpoints returns the endpoints of a port of the family of its cluster address, each once.
func (b *builder) sortedEndpoints(e exposure, targets []target) []netip.AddrPort {
	list := b.endpoints(e.service, e.to.Is4(), e.port, targets)
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// exposure is a port of a service that nodes answer on.
type exposure struct {
	service *coe.Service
	at      coe.VIP    // a port of nodes at the unspecified address of a family, of an external address, or of a cluster address
	to      netip.Addr // the cluster address of the service, of the same family
	port    coe.ServicePort
	health  bool // nodes answer health checks themselves, and port is zero
	cluster bool // at is a port of the cluster address
}

// exposures returns the node ports and the ports of external addresses that the namespace has claimed. A
// port belongs to the first service that has it, and is a problem of the others.
func (b *builder) exposures() (all []exposure) {
	owners, external := map[coe.VIP]*coe.Service{}, 0
	for _, s := range b.Services {
		to := b.ledTo(s)
		if s.Excess() != "" {
			continue
		}
		b.unreachable(s, to)
		b.unserved6(s)
		if len(to) == 0 {
			continue
		}
		for e := range b.clusterPortsOf(s, to) {
			if owners[e.at] == nil { // the mapping of services reports others
				owners[e.at] = s
				all = append(all, e)
			}
		}
		for e := range b.nodePortsOf(s) {
			if owner := owners[e.at]; owner != nil {
				b.serviceProblem(s, coe.AddressTaken, fmt.Sprintf(
					"node port %s %d belongs to service %s (%s); choose another port for one of the two services", e.at.Protocol, e.at.Port, owner.Name, owner.UID))
				continue
			}
			owners[e.at] = s
			all = append(all, e.inFamilies(to)...)
		}
		reported := false
		for e := range b.externalPortsOf(s, to) {
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
			owners[e.at] = s
			all = append(all, e)
		}
	}
	return all
}

// inFamilies returns a node port once for each family of the cluster addresses that nodes lead to. Health checks have no
// family.
func (e exposure) inFamilies(to []netip.Addr) (all []exposure) {
	if e.health {
		return []exposure{e}
	}
	for _, e.to = range to {
		if e.at.Address = netip.IPv4Unspecified(); e.to.Is6() {
			e.at.Address = netip.IPv6Unspecified()
		}
		all = append(all, e)
	}
	return all
}

// unserved6 reports that nobody reaches the IPv6 cluster addresses of a service, if nodes balance: they lead to services of
// IPv4 only.
func (b *builder) unserved6(s *coe.Service) {
	if i := slices.IndexFunc(b.clusterAddresses(s), netip.Addr.Is6); i >= 0 && b.nodesBalance() {
		b.unenforced("service", s.UID, s.Name, fmt.Sprintf(
			"nobody reaches its cluster address %s: on OpenDaylight nodes lead to services of IPv4 only", b.clusterAddresses(s)[i]))
	}
}

// clusterPortsOf returns the ports of a service at its cluster addresses, if nodes balance.
func (b *builder) clusterPortsOf(s *coe.Service, to []netip.Addr) iter.Seq[exposure] {
	return func(yield func(exposure) bool) {
		if !b.nodesBalance() {
			return
		}
		for _, a := range to {
			for _, p := range s.Ports {
				at := coe.VIP{Address: a, Protocol: p.Protocol, Port: p.Port}
				if p.Port != 0 && !yield(exposure{service: s, at: at, to: a, port: p, cluster: true}) {
					return
				}
			}
		}
	}
}

// nodePortsOf returns the claimed node ports of a service, without a family.
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

// externalPortsOf returns the claimed ports of a service's external addresses, if nodes lead to them: to the cluster
// address of the same family. A cluster address of the namespace is not external: nodes route it.
func (b *builder) externalPortsOf(s *coe.Service, to []netip.Addr) iter.Seq[exposure] {
	return func(yield func(exposure) bool) {
		if !b.ManagementPorts {
			return
		}
		for _, a := range s.ExternalIPs {
			cluster := sameFamily(to, a)
			if !cluster.IsValid() || b.restricts(s, a) && len(s.SourceRanges) > coe.MaxSourceRanges {
				continue
			}
			for _, p := range s.Ports {
				at := coe.VIP{Address: a, Protocol: p.Protocol, Port: p.Port}
				if b.VIPs[at] && !yield(exposure{service: s, at: at, to: cluster, port: p}) {
					return
				}
			}
		}
	}
}

// unreachable reports that nobody reaches the restricted addresses of a service, because nodes cannot lead there.
// to are its cluster addresses that nodes lead to.
func (b *builder) unreachable(s *coe.Service, to []netip.Addr) {
	i := slices.IndexFunc(s.LoadBalancerIPs, func(a netip.Addr) bool {
		return b.restricts(s, a) && (!sameFamily(to, a).IsValid() || len(s.Ports) == 0 || len(s.SourceRanges) > coe.MaxSourceRanges)
	})
	switch {
	case i < 0:
	case len(s.SourceRanges) > coe.MaxSourceRanges:
		b.serviceProblem(s, coe.TooLarge, fmt.Sprintf(
			"nobody reaches its load balancer addresses: it has more than %d loadBalancerSourceRanges; combine them", coe.MaxSourceRanges))
	default:
		b.unenforced("service", s.UID, s.Name, fmt.Sprintf(
			"nobody reaches its load balancer address %s: loadBalancerSourceRanges need a port, a cluster IP of the same family, and a prefix of this family in --node-network",
			s.LoadBalancerIPs[i]))
	}
}

// restricts reports whether only some clients reach an address of a service. The nodes lead all clients to it,
// also pods: a load balancer of OVN does not know sources.
func (b *builder) restricts(s *coe.Service, a netip.Addr) bool {
	return b.ManagementPorts && s.Restricted && slices.Contains(s.LoadBalancerIPs, a)
}

// ledTo returns the cluster addresses of a service that nodes lead clients to, one of each family.
func (b *builder) ledTo(s *coe.Service) (all []netip.Addr) {
	for _, a := range b.clusterAddresses(s) {
		if b.nodesHave(a) && !sameFamily(all, a).IsValid() && b.holds(s, a, "", 0) {
			all = append(all, a)
		}
	}
	return all
}

// nodesHave reports whether nodes have addresses of the family of an address in the network of the pods.
func (b *builder) nodesHave(a netip.Addr) bool { return a.Is4() || b.NodesIPv6 }

// sameFamily returns the first of some addresses that has the family of another one; zero if none has.
func sameFamily(all []netip.Addr, as netip.Addr) netip.Addr {
	for _, a := range all {
		if a.Is4() == as.Is4() {
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

// endpointsByNode returns the endpoints of a port, coe.MaxExposedEndpoints on a node at most. A node
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

// readyByNode returns how many ready pods each node has.
func (b *builder) readyByNode(targets map[netip.Addr][]target) map[netip.Addr]int {
	all := map[netip.Addr]int{}
	for node, here := range targets {
		ready := map[coe.LeaseKey]bool{} // a pod can have an address of each family
		for _, t := range here {
			if !t.draining {
				ready[b.pods[t.addr].Key()] = true
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
	to := slices.DeleteFunc(slices.Clone(b.clusterAddresses(s)), func(a netip.Addr) bool { return !b.nodesHave(a) })
	led := func(a netip.Addr) bool { return b.ManagementPorts && len(s.Ports) > 0 && sameFamily(to, a).IsValid() }
	ports := len(to) > 0 && b.servesNodePorts()
	exposes := slices.ContainsFunc(s.Ports, func(p coe.ServicePort) bool { return p.NodePort != 0 })
	for ignored, is := range map[coe.Ignored]bool{
		coe.NodePort:            exposes && !ports,
		coe.ExternalAddress:     slices.ContainsFunc(s.ExternalIPs, func(a netip.Addr) bool { return !led(a) && !b.restricts(s, a) }),
		coe.ExternalPolicyLocal: s.Local && (!exposes || !ports) && !slices.ContainsFunc(s.ExternalIPs, led),
		coe.HealthCheck:         s.Local && s.HealthPort != 0 && !ports,
		coe.SourceRanges:        s.Restricted && !b.ManagementPorts,
	} {
		if is {
			out |= ignored
		}
	}
	return out
}
