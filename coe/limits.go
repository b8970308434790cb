package coe

import "fmt"

// Limits of services. One object of a tenant can have thousands of ports, external addresses
// or endpoints, and a load balancer has their product. A service above a limit is a Problem
// and is not mapped. Other services are not affected.
//
// Kubernetes limits only the size of an object. It is tested with 250 endpoints per service.
const (
	// MaxServicePorts is the maximum number of ports of a service or an Endpoints.
	MaxServicePorts = 128
	// MaxVIPs is the maximum number of VIPs of a service: its ports times its addresses.
	MaxVIPs = 256
	// MaxBackends is the maximum number of endpoints of all VIPs of a service. An IPv6
	// endpoint counts twice.
	MaxBackends = 2500
	// MaxNamespaceBackends is the same limit for all services of a namespace.
	MaxNamespaceBackends = 100_000
	// MaxPlaceBackends is the maximum number of endpoints of all VIPs at all places with other endpoints
	// than elsewhere. A VIP without an endpoint at a place counts as one. So every endpoint can be at one
	// place, and a place can have none. The namespace's endpoints and nodes at places have the limit
	// MaxNamespaceBackends, apart from its other endpoints.
	MaxPlaceBackends = MaxBackends + MaxVIPs
	// MaxHostPorts is the maximum number of HostPorts of a pod. Its node refuses a pod with more.
	MaxHostPorts = 64

	// MaxNodePorts is the maximum number of node ports of the services of a namespace. Every node
	// has each of them.
	MaxNodePorts = 500
	// MaxExternalPorts is the maximum number of ports of external addresses that nodes lead for a
	// namespace, counted for each address. Every node has each of them.
	MaxExternalPorts = 500
	// MaxClusterPorts is the maximum number of ports of cluster addresses that nodes lead for a namespace, if they lead
	// pods to services. Every node has each of them.
	MaxClusterPorts = 2500
	// MaxSourceRanges is the maximum number of ranges of clients of a service.
	MaxSourceRanges = 100
	// MaxExposedEndpoints is the maximum number of endpoints to which a node leads clients of an exposed port
	// itself. If clients reach only the endpoints on the node that they ask, others on the node are not used.
	// Otherwise the node leads to the cluster address, which has all endpoints.
	MaxExposedEndpoints = 64
	// MaxDirectEndpoints is the maximum number of endpoints on all nodes to which nodes lead clients themselves, for all
	// exposed ports of a namespace. Every node has each of them. Further ports lead to the cluster address.
	MaxDirectEndpoints = 10_000
	// MaxSharedEndpoints is the same for the endpoints of ports with the policy Local to which nodes lead their own programs, and pods if
	// nodes balance. Each is up to three elements. Further ports are led by the node that is asked.
	MaxSharedEndpoints = 3_000
	// MaxAffinityRules is the maximum number of rules by which nodes keep the endpoints of clients, for the ports of a namespace with
	// affinity: two for each endpoint, and one for each port, at each address. If nodes balance, a port with the policy Local counts twice at an
	// external address, and three times at the addresses of nodes. Every node has the rules. Further ports have no affinity.
	MaxAffinityRules = 5_000
	// MaxInternalPorts is the maximum number of ports of cluster addresses, of the services of a namespace, for which nodes lead
	// their own programs only to endpoints on the node. Every node has each of them.
	MaxInternalPorts = 500
)

// Excess names the limit that the service itself exceeds; empty for none.
func (s *Service) Excess() string {
	if n := len(s.Ports); n > MaxServicePorts {
		return fmt.Sprintf("it has more than %d ports; split the service", MaxServicePorts)
	}
	if n := max(len(s.Ports), 1) * (len(s.ClusterIPs) + len(s.ExternalIPs)); n > MaxVIPs {
		return fmt.Sprintf("its ports times its addresses are more than %d; split the service, or remove external addresses", MaxVIPs)
	}
	return ""
}

// Limits of network policies and of the pods that they name. A policy above a limit fails closed, like
// an invalid one.
const (
	// MaxPolicyEntries is the maximum number of rules, ports, peers, requirements and their values of
	// a policy. A block counts as the prefixes that it can become without its parts. A prefix of IPv6
	// counts twice.
	MaxPolicyEntries = 2500
	// MaxPolicyText is the maximum number of bytes of keys and values in the selectors of a policy.
	MaxPolicyText = 64 << 10
	// MaxNamedPorts is the maximum number of named ports of a pod. No policy sees the others.
	MaxNamedPorts = 128
)

// Excess names the limit that the policy exceeds; empty for none.
func (p *PolicySpec) Excess() string {
	size := p.Pods.size()
	for rule := range p.Rules() {
		size.entries += 1 + len(rule.Ports)
		for i := range rule.Peers {
			size.addPeer(&rule.Peers[i])
		}
	}
	return size.excess()
}

// Excess names the limit of a policy that the selector exceeds alone; empty for none.
func (s *Selector) Excess() string { return s.size().excess() }

// policySize is how much of the limits of a policy something needs.
type policySize struct{ entries, text int }

func (s *policySize) excess() string {
	switch {
	case s.entries > MaxPolicyEntries:
		return fmt.Sprintf("its rules, peers and ports have more than %d entries, where a block has an entry for each prefix that its parts leave, and two for IPv6; split the policy", MaxPolicyEntries)
	case s.text > MaxPolicyText:
		return fmt.Sprintf("its selectors have more than %d bytes; split the policy", MaxPolicyText)
	}
	return ""
}

func (s *policySize) add(more *policySize) {
	s.entries, s.text = s.entries+more.entries, s.text+more.text
}

func (s *policySize) addPeer(p *PolicyPeer) {
	s.entries++
	if p.Block != nil {
		s.entries += p.Block.prefixes()
		return
	}
	s.add(p.Pods.size())
	if p.Namespaces != nil {
		s.add(p.Namespaces.size())
	}
}

func (s *Selector) size() *policySize {
	var size policySize
	for i := range s.Requirements {
		r := &s.Requirements[i]
		size.entries += 1 + len(r.Values)
		size.text += len(r.Key)
		for _, v := range r.Values {
			size.text += len(v)
		}
	}
	return &size
}

// prefixes returns how many prefixes the block becomes at most. A part splits its block once for each
// bit that it is longer. A prefix of IPv6 counts twice.
func (b *AddressBlock) prefixes() int {
	n := 1
	for _, e := range b.Except {
		n += max(e.Bits()-b.CIDR.Bits(), 0)
	}
	if b.CIDR.Addr().Is6() {
		n *= 2
	}
	return n
}
