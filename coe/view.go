package coe

import (
	"iter"
	"net/netip"
)

// View is a snapshot of one namespace, as far as mapping may use it.
type View struct {
	Namespace string
	Pods      []*Pod       // sorted by uid
	Services  []*Service   // sorted by uid
	Endpoints []*Endpoints // sorted by uid
	Policies  []*Policy    // sorted by uid
	// Configured is the Namespace if it has settings: PolicyLog, Ignored, or security profiles; else nil.
	Configured *Namespace

	Leases       Leases
	Blocks       []*Block // sorted by elan and prefix
	ELANs        map[string]*ELANFact
	VPN          *VPNFact                // nil while none is chosen
	ServiceFacts map[string]*ServiceFact // by uid
	// VIPs are the VIPs that services of this namespace may use, besides the addresses of
	// ServiceFacts.
	VIPs map[VIP]bool
	// Refusals have the reason if a lease or a service address could not be given.
	Refusals        map[LeaseKey]Refusal
	ServiceRefusals map[string]Refusal

	Nodes    map[netip.Addr]*Node // of the whole cluster, by address
	Gateways []*Gateway           // sorted by node
	// Numbers and Networks are as in a ClusterView. Only namespaces with host ports are marked if they change, and those with
	// services if the ranges of pods change.
	Numbers  map[netip.Addr]*NodeFact
	Networks *Networks
	// PolicySet is of the whole cluster. It is not nil.
	PolicySet *PolicySet
}

// Misplaced reports whether the pod's node has the address of another node. A pod of a node
// that reports a false address is not attached to the other node.
func (v View) Misplaced(p *Pod) bool {
	holder := v.Nodes[p.HostIP]
	return p.NodeName != "" && holder != nil && holder.HostName != "" && holder.HostName != p.NodeName
}

// ClusterView is the part of the state that belongs to no namespace, as far as mapping may
// use it. It must not be changed.
type ClusterView struct {
	Nodes    map[netip.Addr]*Node     // by address
	Numbers  map[netip.Addr]*NodeFact // by address of the node
	Networks *Networks                // nil while none are chosen
	Damaged  []Problem                // unusable records and entries in the datastore
	Policies []*Policy                // sorted by uid
	Gateways []*Gateway               // sorted by node
	// AddressProblems are the problems of nodes whose address belongs to another node or has another use, and of pools.
	AddressProblems []Problem
	// PolicySet is the same as in Views of the same time. It is not nil.
	PolicySet *PolicySet
	// EgressIPs are sorted by name. EgressProblems are the problems of those that sources request.
	EgressIPs      []*EgressIP
	EgressProblems []Problem
	// Blocks are the address blocks of all namespaces by the node of their elan-instance, in no order. The blocks of a node are the
	// same slice until one of them changes.
	Blocks map[netip.Addr][]*Block
}

// Differences returns the values that only one of two lists has, and whether the second one has it. Both lists are sorted by
// compare, by which no two values of a list are equal. A replaced value is returned first, and then its successor. The pointers
// decide whether both lists have a value.
func Differences[V any](before, now []*V, compare func(a, b *V) int) iter.Seq2[*V, bool] {
	return func(yield func(*V, bool) bool) {
		for len(before) > 0 && len(now) > 0 {
			if before[0] == now[0] {
				before, now = before[1:], now[1:]
				continue
			}
			order := compare(before[0], now[0])
			if order <= 0 {
				if !yield(before[0], false) {
					return
				}
				before = before[1:]
			}
			if order >= 0 {
				if !yield(now[0], true) {
					return
				}
				now = now[1:]
			}
		}
		for _, v := range before {
			if !yield(v, false) {
				return
			}
		}
		for _, v := range now {
			if !yield(v, true) {
				return
			}
		}
	}
}
