package service

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// nearEndpoints returns the endpoints of a port of a cluster address for clients on each node that has others than clients
// elsewhere, if nodes balance and endpoints have hints. It returns none if the nodes have more than coe.MaxPlaceBackends, which
// excess reports.
func (b *builder) nearEndpoints(e exposure, targets []target) (near map[netip.Addr][]netip.AddrPort, excess bool) {
	hinted := func(t target) bool { return t.place != nil && t.place.Hints != nil }
	if !e.cluster || e.service.InternalLocal || !b.NodesBalance || !slices.ContainsFunc(targets, hinted) {
		return nil, false
	}
	choice, _ := b.choices(e.service, e.to.Is4(), e.port, targets)
	if !choice.byPlace() {
		return nil, false
	}
	near, count := map[netip.Addr][]netip.AddrPort{}, 0
	for _, node := range b.clients() {
		list := choice.at(b.Nodes[node])
		if list == choice.all {
			continue
		}
		here := list.All()
		near[node] = here[:min(len(here), coe.MaxExposedEndpoints)]
		if count += len(near[node]); count > coe.MaxPlaceBackends {
			return nil, true
		}
	}
	return near, false
}

// tooFar reports whether hints of the endpoints of a service have no effect because the nodes have too many endpoints.
func (b *builder) tooFar(s *coe.Service) bool {
	for _, a := range b.ledTo(s) {
		for _, p := range s.Ports {
			if _, excess := b.nearEndpoints(exposure{service: s, to: a, port: p, cluster: true}, b.accepted[s]); excess {
				return true
			}
		}
	}
	return false
}
