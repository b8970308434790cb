package coe

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Direction is a direction of traffic, as the pod sees it that a policy selects.
type Direction string

// The directions.
const (
	Ingress Direction = "ingress" // to the pod
	Egress  Direction = "egress"  // from the pod
)

// PolicySpec is a policy with its rules, as networking.k8s.io/v1 defines them. Policies add up:
// traffic that a rule of any policy allows is allowed. An access list is a policy of the cluster,
// and applies to the pods that name it as a security profile.
type PolicySpec struct {
	Policy
	// Pods selects the pods of the policy's namespace that the policy applies to; of all
	// namespaces for a policy of the cluster.
	Pods Selector
	// Ingress and Egress are what the policy says about a direction.
	Ingress, Egress PolicySide
}

// PolicySet is what the mapping of every scope needs to know of all namespaces. A PolicySet is
// never changed, only replaced.
type PolicySet struct {
	// Policies are of all namespaces and of the cluster; sorted by namespace, name and UID. Each
	// name of Unknown has an UnknownProfile. A policy of Excess is here as it is enforced: without its
	// rules, or with a Namespace in named ports of its egress rules.
	Policies []*PolicySpec
	// Profiles are the security profiles that pods or namespaces name, with these namespaces and
	// the namespaces of these pods, sorted.
	Profiles map[string][]string
	// Unknown are the names in Profiles that no access list has.
	Unknown map[string]bool
	// Excess names, by UID of a policy, the limit that it exceeds with the policies of its namespace
	// before it, and what follows from it.
	Excess map[string]string
	// Namespaces has the labels that sources report for namespaces. LabelsOf also knows the labels of
	// a namespace that is not reported.
	Namespaces map[string]Labels
	// NamedPorts has, for each named port of a rule of a policy, the numbers that pods have for it,
	// sorted: pods of any namespace, and pods of the policy's own namespace.
	NamedPorts map[NamedPort][]uint16
	// EgressIPs select pods too. Only their selectors count here.
	EgressIPs []*EgressIP
	// Complete is set once all sources have reported all policies and namespaces. Until then, a
	// pod may be subject to a policy that is not here.
	Complete bool
}

// LabelsOf returns the labels of a namespace. A namespace that no source reports has the label that
// every namespace of Kubernetes has.
func (s *PolicySet) LabelsOf(namespace string) Labels {
	if labels, found := s.Namespaces[namespace]; found {
		return labels
	}
	return NewLabels(map[string]string{namespaceLabel: namespace})
}

// namespaceLabel is the label with the name of the namespace.
const namespaceLabel = "kubernetes.io/metadata.name"

// NamedPort is the name of container ports, with their protocol: "tcp", "udp" or "sctp". Namespace is
// that of the pods; empty for pods of any namespace.
type NamedPort struct{ Name, Protocol, Namespace string }

// Side returns what the policy says about a direction.
func (p *PolicySpec) Side(d Direction) *PolicySide {
	if d == Ingress {
		return &p.Ingress
	}
	return &p.Egress
}

// Rules returns the rules of both directions.
func (p *PolicySpec) Rules() iter.Seq[*PolicyRule] {
	return func(yield func(*PolicyRule) bool) {
		for _, side := range []*PolicySide{&p.Ingress, &p.Egress} {
			for i := range side.Rules {
				if !yield(&side.Rules[i]) {
					return
				}
			}
		}
	}
}

// PolicySide is what a policy says about one direction.
type PolicySide struct {
	// Isolates is set if the selected pods have only the traffic that a rule allows. If it is
	// not set, the policy says nothing about the direction, and Rules is empty.
	Isolates bool
	Rules    []PolicyRule
}

// PolicyRule allows the traffic that matches one of its peers and one of its ports.
type PolicyRule struct {
	Peers []PolicyPeer // if there are none, everyone matches
	Ports []PolicyPort // if there are none, all traffic matches
	// Family, if not 0, is the address family of the traffic.
	Family Family
	// Name is the name of the entry of an access list; empty for a rule of a network policy.
	Name string
}

// Family is an address family; 0 for all.
type Family uint8

// The address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Has reports whether an address belongs to the family. An unknown address, the zero value,
// belongs to none.
func (f Family) Has(a netip.Addr) bool { return f == 0 || a.IsValid() && a.Is4() == (f == IPv4) }

// LeavesNamespace reports whether the rule can match pods outside of the policy's namespace.
func (r *PolicyRule) LeavesNamespace() bool {
	return len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p PolicyPeer) bool { return p.Block != nil || p.Namespaces != nil })
}

// PolicyPeer is the other end of allowed traffic: a block of addresses, or pods.
type PolicyPeer struct {
	// Block, if not nil, is the peer; the selectors do not count.
	Block *AddressBlock
	// Namespaces selects the namespaces of the pods by their labels; nil: the policy's own.
	Namespaces *Selector
	// Pods selects pods in these namespaces.
	Pods Selector
}

// AddressBlock is a block of addresses without some of its parts.
type AddressBlock struct {
	CIDR   netip.Prefix
	Except []netip.Prefix // each is a part of CIDR
}

// Contains reports whether an address is in the block.
func (b *AddressBlock) Contains(a netip.Addr) bool {
	return b.CIDR.Contains(a) &&
		!slices.ContainsFunc(b.Except, func(e netip.Prefix) bool { return e.Contains(a) })
}

// String returns the block, and what it leaves out.
func (b *AddressBlock) String() string {
	if len(b.Except) == 0 {
		return b.CIDR.String()
	}
	texts := make([]string, len(b.Except))
	for i, e := range b.Except {
		texts[i] = e.String()
	}
	return b.CIDR.String() + " except " + strings.Join(texts, ", ")
}

// PolicyPort is the ports of a protocol to which traffic goes.
type PolicyPort struct {
	Protocol string // "tcp", "udp", "sctp"
	// Name names container ports of the destination. Each pod has its own numbers for a name.
	Name string
	// Namespace, if not empty, limits a named port to pods of this namespace.
	Namespace string
	// First and Last are the range of numbers if there is no name. If they are 0, all ports of
	// the protocol match.
	First, Last uint16
}

// ContainerPort is a port of a container, with its protocol: "tcp", "udp" or "sctp".
type ContainerPort struct {
	Name     string
	Protocol string
	Port     uint16
}

// Operator is how a Requirement compares.
type Operator string

// The operators, as in a LabelSelectorRequirement of Kubernetes.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn" // also if the label is missing
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Requirement is a condition on one label.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string // for In and NotIn
}

// Matches reports whether labels meet the requirement.
func (r *Requirement) Matches(labels Labels) bool {
	value, found := labels.Get(r.Key)
	switch r.Operator {
	case In:
		return found && slices.Contains(r.Values, value)
	case NotIn:
		return !found || !slices.Contains(r.Values, value)
	case Exists:
		return found
	}
	return !found
}

// String returns the requirement as kubectl takes it.
func (r *Requirement) String() string {
	switch r.Operator {
	case In:
		if len(r.Values) == 1 {
			return r.Key + "=" + r.Values[0]
		}
		return r.Key + " in (" + strings.Join(r.Values, ",") + ")"
	case NotIn:
		if len(r.Values) == 1 {
			return r.Key + "!=" + r.Values[0]
		}
		return r.Key + " notin (" + strings.Join(r.Values, ",") + ")"
	case Exists:
		return r.Key
	}
	return "!" + r.Key
}

// Selector selects by labels. The zero value selects everything.
type Selector struct {
	// Requirements must all hold. Their order, and the order of their values, does not matter.
	Requirements []Requirement
}

// Matches reports whether labels meet all requirements.
func (s *Selector) Matches(labels Labels) bool {
	for i := range s.Requirements {
		if !s.Requirements[i].Matches(labels) {
			return false
		}
	}
	return true
}

// String returns the selector as kubectl takes it; empty for a selector of everything.
func (s *Selector) String() string {
	texts := make([]string, len(s.Requirements))
	for i := range s.Requirements {
		texts[i] = s.Requirements[i].String()
	}
	return strings.Join(texts, ",")
}
