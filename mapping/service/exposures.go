package service

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// exposure is a port of a service that nodes answer on.
type exposure struct {
	service *coe.Service
	at      coe.VIP    // a port of nodes at the unspecified address of a family, of an external address, or of a cluster address
	to      netip.Addr // the cluster address of the service, of the same family
	port    coe.ServicePort
	health  bool // nodes answer health checks themselves, and port is zero
	cluster bool // at is a port of the cluster address
	own     bool // nodes lead only their own programs

	affinity uint32 // seconds a client keeps its endpoint
}

// exposures returns the ports that claimedPorts returns, with affinity. Too many rules for affinity are a problem.
func (b *builder) exposures() []exposure {
	all, rules, endpoints := b.claimedPorts(), 0, map[string]int{}
	for _, of := range b.Endpoints {
		endpoints[of.Name] += max(len(of.Addresses), len(of.Terminating))
	}
	var reported *coe.Service
	for i := range all {
		e := &all[i]
		if e.health || e.service.Affinity == 0 {
			continue
		}
		if need := b.chainsOf(e) * (2*min(endpoints[e.service.Name], coe.MaxExposedEndpoints) + 1); rules+need <= coe.MaxAffinityRules {
			rules += need
			e.affinity = e.service.Affinity
		} else if reported != e.service {
			reported = e.service
			b.unenforced(e.service, fmt.Sprintf(
				"clients of nodes keep no endpoint at some of its ports: the ports and endpoints of the services of the namespace with session affinity need more than %d rules on each node; use another namespace",
				coe.MaxAffinityRules))
		}
	}
	return all
}

// chainsOf returns how many chains a port has on a node if it has affinity. If nodes balance, a port with the policy Local has one more for
// clients inside the cluster, and a node port one for the address of the node.
func (b *builder) chainsOf(e *exposure) int {
	switch {
	case !b.NodesBalance || !e.service.Local || e.cluster:
		return 1
	case e.at.Address.IsUnspecified():
		return 3
	}
	return 2
}

// claimedPorts returns the node ports and the ports of external addresses that the namespace has claimed. A
// port belongs to the first service that has it, and is a problem of the others.
func (b *builder) claimedPorts() (all []exposure) {
	owners, cluster, external := map[coe.VIP]*coe.Service{}, 0, 0
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
			if owners[e.at] != nil { // the mapping of services reports it
				continue
			}
			if cluster++; b.tooManyClusterPorts(e, cluster) {
				break
			}
			owners[e.at] = s
			all = append(all, e)
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

// tooManyClusterPorts reports whether an exposure of a cluster address is one too many for nodes, with n in the namespace, and
// adds a problem then.
func (b *builder) tooManyClusterPorts(e exposure, n int) bool {
	switch {
	case e.own && n > coe.MaxInternalPorts:
		b.unenforced(e.service, fmt.Sprintf(
			"programs on nodes reach all endpoints of some of its ports: the services of the namespace with internalTrafficPolicy Local have more than %d ports; use another namespace",
			coe.MaxInternalPorts))
	case !e.own && n > coe.MaxClusterPorts:
		b.serviceProblem(e.service, coe.TooLarge, fmt.Sprintf(
			"nobody reaches some of its ports at its cluster address: nodes lead to %d such ports of a namespace; use another namespace, or remove services",
			coe.MaxClusterPorts))
	default:
		return false
	}
	return true
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
	if i := slices.IndexFunc(b.clusterAddresses(s), netip.Addr.Is6); i >= 0 && b.NodesBalance {
		b.unenforced(s, fmt.Sprintf(
			"nobody reaches its cluster address %s: on OpenDaylight nodes lead to services of IPv4 only", b.clusterAddresses(s)[i]))
	}
}

// clusterPortsOf returns the ports of a service at its cluster addresses, if nodes balance. Otherwise nodes lead their own
// programs there, if only endpoints on their node may serve them.
func (b *builder) clusterPortsOf(s *coe.Service, to []netip.Addr) iter.Seq[exposure] {
	return func(yield func(exposure) bool) {
		own := !b.NodesBalance
		if own && (!s.InternalLocal || !b.ManagementPorts) {
			return
		}
		for _, a := range to {
			for _, p := range s.Ports {
				at := coe.VIP{Address: a, Protocol: p.Protocol, Port: p.Port}
				if p.Port != 0 && !yield(exposure{service: s, at: at, to: a, port: p, cluster: true, own: own}) {
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
		if !b.NodesLead {
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
		b.unenforced(s, fmt.Sprintf(
			"nobody reaches its load balancer address %s: loadBalancerSourceRanges need a port, a cluster IP of the same family, and a prefix of this family in --node-network",
			s.LoadBalancerIPs[i]))
	}
}

// restricts reports whether only some clients reach an address of a service. The nodes lead all clients to it,
// also pods: a load balancer of OVN does not know sources.
func (b *builder) restricts(s *coe.Service, a netip.Addr) bool {
	return b.NodesLead && s.Restricted && slices.Contains(s.LoadBalancerIPs, a)
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
func (b *builder) nodesHave(a netip.Addr) bool {
	return a.Is4() || b.NodesIPv6 && !b.NodesBalance
}

// sameFamily returns the first of some addresses that has the family of another one; zero if none has.
func sameFamily(all []netip.Addr, as netip.Addr) netip.Addr {
	for _, a := range all {
		if a.Is4() == as.Is4() {
			return a
		}
	}
	return netip.Addr{}
}
