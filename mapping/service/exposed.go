package service

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// ExposedPorts returns the ports on which nodes answer for the services of a namespace: ports of nodes, of
// external addresses, of cluster addresses if nodes balance or only endpoints on a node may serve its programs, and of
// health checks. Like the model it is pure. Agents of nodes need it, and no backend does.
func ExposedPorts(v coe.View, s Settings) (all []coe.ExposedPort) {
	b := newBuilder(v, s)
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
		shared  int // endpoints to which nodes lead their own programs
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
		if b.NodesBalance { // nothing else leads to endpoints
			p.Inside = b.inside(e, &p, of.all, coe.MaxSharedEndpoints-shared)
			shared += len(p.Inside)
		} else {
			if direct+len(p.Direct) > coe.MaxDirectEndpoints {
				p.Direct, p.Affinity = nil, 0
			}
			direct += len(p.Direct)
			shared += b.share(e, &p, of.all, coe.MaxSharedEndpoints-shared)
		}
		all = append(all, p)
	}
	return all
}

// inside returns the endpoints on all nodes of a port that is local for clients outside the cluster, of which there may be free more.
func (b *builder) inside(e exposure, p *coe.ExposedPort, all []target, free int) (list []coe.InsideEndpoint) {
	if !p.Local || e.cluster {
		return nil
	}
	for _, at := range b.sortedEndpoints(e, all) {
		if l := b.pods[at.Addr()]; l != nil && len(list) < coe.MaxExposedEndpoints {
			list = append(list, coe.InsideEndpoint{At: at, Node: l.Node})
		}
	}
	if len(list) > free {
		return nil
	}
	return list
}

// share decides whether every node has the endpoints of a local node port on all nodes, of which there may be free more. It
// returns how many every node has.
func (b *builder) share(e exposure, p *coe.ExposedPort, all []target, free int) int {
	if !p.Local || !e.at.Address.IsUnspecified() {
		return 0
	}
	var list []netip.AddrPort
	for node, here := range p.Endpoints {
		if node.Is4() == e.to.Is4() { // programs ask a node at this address
			list = append(list, here...)
		}
	}
	if len(list) == 0 || len(list) > min(free, coe.MaxExposedEndpoints) {
		return 0
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	p.Shared, p.Every = true, slices.Equal(list, b.sortedEndpoints(e, all))
	return len(list)
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
	b := alone(v, s)
	return b.allExposures(b.acceptedTargets())
}

// allExposures returns the ports of services with targets.
func (b *builder) allExposures(targets map[*coe.Service][]target) (all []Exposure) {
	var (
		service *coe.Service // that of is about
		of      exposedTargets
		shared  int // endpoints to which nodes lead their own programs
	)
	for _, e := range b.exposures() {
		accepted, found := targets[e.service]
		if !found || e.health || e.own {
			continue
		}
		if e.service != service {
			service, of = e.service, b.exposedTargets(e.service, accepted)
		}
		p := b.exposedPort(e, of)
		if !b.NodesBalance {
			shared += b.share(e, &p, accepted, coe.MaxSharedEndpoints-shared)
		}
		all = append(all, Exposure{ExposedPort: p, Service: e.service, All: b.sortedEndpoints(e, accepted)})
	}
	return all
}

// acceptedTargets returns the targets of the services that the model has: of those that exceed no limit.
func (b *builder) acceptedTargets() map[*coe.Service][]target {
	endpoints, all := b.endpointsByName(), map[*coe.Service][]target{}
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
	// byNode has the targets that are pods of the namespace, if the service is local, and onNode also those that are
	// addresses of nodes, if it is local for clients of its cluster addresses.
	byNode, onNode map[netip.Addr][]target
	local, near    map[portOfFamily]map[netip.Addr][]netip.AddrPort
	direct         map[portOfFamily][]netip.AddrPort
}

type portOfFamily struct {
	coe.ServicePort
	is4 bool
	// cluster is set for a port of the cluster address, which can lead elsewhere.
	cluster bool
}

func (b *builder) exposedTargets(s *coe.Service, targets []target) exposedTargets {
	of := exposedTargets{
		all: targets, byNode: map[netip.Addr][]target{}, onNode: map[netip.Addr][]target{},
		local: map[portOfFamily]map[netip.Addr][]netip.AddrPort{}, near: map[portOfFamily]map[netip.Addr][]netip.AddrPort{},
		direct: map[portOfFamily][]netip.AddrPort{},
	}
	if !s.Local && !s.InternalLocal {
		return of
	}
	for _, t := range targets {
		if l := b.pods[t.addr]; l != nil {
			of.byNode[l.Node] = append(of.byNode[l.Node], t)
			of.onNode[l.Node] = append(of.onNode[l.Node], t)
		} else if s.InternalLocal {
			for _, node := range b.nodesAt(t.addr) {
				of.onNode[node] = append(of.onNode[node], t)
			}
		}
	}
	return of
}

// nodesAt returns the nodes that have an internal address. Several can report the same second one.
func (b *builder) nodesAt(a netip.Addr) []netip.Addr {
	if b.Nodes[a] != nil {
		return []netip.Addr{a}
	}
	if b.secondIPs == nil {
		b.secondIPs = map[netip.Addr][]netip.Addr{}
		for node, n := range b.Nodes {
			if n.SecondIP.IsValid() {
				b.secondIPs[n.SecondIP] = append(b.secondIPs[n.SecondIP], node)
			}
		}
	}
	return b.secondIPs[a]
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
	p.Local, p.Own = e.service.Local, e.own
	targets := of.byNode
	if e.cluster {
		p.Local, targets = e.service.InternalLocal, of.onNode
	}
	if p.Local {
		if _, known := of.local[port]; !known {
			of.local[port] = b.endpointsByNode(e, targets)
		}
		p.Endpoints = of.local[port]
		p.Refuses = len(p.Endpoints) == 0 && len(b.sortedEndpoints(e, of.all)) == 0
	} else {
		if _, known := of.direct[port]; !known {
			of.direct[port] = b.directEndpoints(e, of)
			of.near[port], _ = b.nearEndpoints(e, of.all)
		}
		p.Direct, p.Endpoints = of.direct[port], of.near[port]
	}
	if p.Local || len(p.Direct) > 0 {
		p.Affinity = e.affinity
	}
	return p
}

// directEndpoints returns the endpoints of a port to which nodes lead clients themselves. There are none if an
// endpoint is not a pod of the namespace: only OVN may lead to other addresses, which judges them like those that
// pods send to. There are none either if there are too many, or if the place of a client decides on the endpoints of
// the cluster address: such a service can exceed a limit of its own, and then leads nowhere. If nodes balance, nobody else
// does: a cluster address leads to all endpoints, or as many as a node can have.
func (b *builder) directEndpoints(e exposure, of exposedTargets) []netip.AddrPort {
	if e.service.InternalLocal && !b.NodesBalance {
		return nil
	}
	list := b.sortedEndpoints(e, of.all)
	some := list[:min(len(list), coe.MaxExposedEndpoints)]
	if e.cluster {
		return some
	}
	if b.NodesBalance {
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
	led := func(a netip.Addr) bool { return b.NodesLead && len(s.Ports) > 0 && sameFamily(to, a).IsValid() }
	ports := len(to) > 0 && b.servesNodePorts()
	exposes := slices.ContainsFunc(s.Ports, func(p coe.ServicePort) bool { return p.NodePort != 0 })
	for ignored, is := range map[coe.Ignored]bool{
		coe.NodePort:            exposes && !ports,
		coe.ExternalAddress:     slices.ContainsFunc(s.ExternalIPs, func(a netip.Addr) bool { return !led(a) && !b.restricts(s, a) }),
		coe.ExternalPolicyLocal: s.Local && (!exposes || !ports) && !slices.ContainsFunc(s.ExternalIPs, led),
		coe.HealthCheck:         s.Local && s.HealthPort != 0 && !ports,
		coe.SourceRanges:        s.Restricted && !b.NodesLead,
	} {
		if is {
			out |= ignored
		}
	}
	return out
}
