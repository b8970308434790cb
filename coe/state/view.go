package state

import (
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// View returns a snapshot of one namespace. Views share unchanged parts.
func (s *Store) View(name string) coe.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := coe.View{}
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
func (s *Store) Views() []coe.View {
	var all []coe.View
	for _, name := range s.Namespaces() {
		all = append(all, s.View(name))
	}
	return all
}

// refresh rebuilds the stale parts of the View.
func (ns *namespace) refresh() {
	v := &ns.shown
	v.Pods = ns.shownPods.refresh(ns.pods, func(p *coe.Pod) string { return p.UID }, strings.Compare)
	v.Leases = ns.shownLeases.refresh(ns.leases, (*coe.Lease).Key, coe.LeaseKey.Compare)
	v.Blocks = ns.shownBlocks.refresh(ns.blocks, keyOf, blockKey.compare)
	if v.Services == nil {
		v.Services = sortedBy(ns.services, func(p *coe.Service) string { return p.UID })
	}
	if v.Endpoints == nil {
		v.Endpoints = sortedBy(ns.endpoints, func(p *coe.Endpoints) string { return p.UID })
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
func names(policies map[string]*coe.PolicySpec) []*coe.Policy {
	var out []*coe.Policy
	for _, p := range sortedBy(policies, func(p *coe.PolicySpec) string { return p.UID }) {
		out = append(out, &p.Policy)
	}
	return out
}

func sortedBy[T any](m map[string]*T, key func(*T) string) []*T {
	return slices.SortedFunc(maps.Values(m), func(a, b *T) int { return strings.Compare(key(a), key(b)) })
}
