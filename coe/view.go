package coe

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
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

// View returns a snapshot of one namespace. Views share unchanged parts.
func (s *Store) View(name string) View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := View{}
	if ns := s.namespaces[name]; ns != nil {
		ns.refresh()
		v = ns.shown
		v.VPN, v.Configured = ns.vpn, ns.configured
		// SetRefusals replaces both maps as a whole.
		v.Refusals, v.ServiceRefusals = ns.refusals, ns.serviceRefusals
	}
	v.Namespace, v.Nodes, v.Gateways, v.PolicySet = name, s.nodes, s.gateways, s.policySet()
	v.Numbers, v.Networks = s.numbers, s.networks
	return v
}

// Views returns the view of every namespace of the store. Changes may come between two views.
func (s *Store) Views() []View {
	var all []View
	for _, name := range s.Namespaces() {
		all = append(all, s.View(name))
	}
	return all
}

// refresh rebuilds the stale parts of the View.
func (ns *namespace) refresh() {
	v := &ns.shown
	v.Pods = ns.shownPods.refresh(ns.pods, func(p *Pod) string { return p.UID }, strings.Compare)
	v.Leases = ns.shownLeases.refresh(ns.leases, (*Lease).Key, LeaseKey.Compare)
	v.Blocks = ns.shownBlocks.refresh(ns.blocks, (*Block).key, blockKey.compare)
	if v.Services == nil {
		v.Services = sortedBy(ns.services, func(p *Service) string { return p.UID })
	}
	if v.Endpoints == nil {
		v.Endpoints = sortedBy(ns.endpoints, func(p *Endpoints) string { return p.UID })
	}
	if v.Policies == nil {
		v.Policies = names(ns.policies)
	}
	if v.ELANs == nil {
		v.ELANs = maps.Clone(ns.elans)
	}
	if v.ServiceFacts == nil {
		v.ServiceFacts = maps.Clone(ns.serviceFacts)
	}
	if v.VIPs == nil {
		v.VIPs = maps.Clone(ns.vips)
	}
}

// names returns the policies without their rules, sorted by UID.
func names(policies map[string]*PolicySpec) []*Policy {
	var out []*Policy
	for _, p := range sortedBy(policies, func(p *PolicySpec) string { return p.UID }) {
		out = append(out, &p.Policy)
	}
	return out
}

func sortedBy[T any](m map[string]*T, key func(*T) string) []*T {
	return slices.SortedFunc(maps.Values(m), func(a, b *T) int { return strings.Compare(key(a), key(b)) })
}
