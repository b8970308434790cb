package ipam

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
)

// requests reports whether the source requests an address for the pod.
func requests(p *coe.Pod) bool {
	return slices.ContainsFunc(p.Interfaces, func(i coe.PodInterface) bool { return len(i.Addresses) > 0 })
}

// requested is a requested address with its interface.
type requested struct {
	key  coe.LeaseKey
	addr netip.Addr
}

// claimRequested claims requested addresses. All of them are held before the first is claimed,
// so that none becomes the gateway of a block around another.
func (r *round) claimRequested() {
	held := map[*coe.Pod][]requested{}
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if requests(p) {
				held[p] = r.holdRequested(s, p)
			}
		}
	}
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if requests(p) {
				r.claimPod(s, p)
				r.dropRequested(s, held[p])
			}
		}
	}
}

// holdRequested holds the requested addresses of a pod that are free.
func (r *round) holdRequested(s *space, p *coe.Pod) (held []requested) {
	for _, i := range p.Interfaces {
		key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
		for _, addr := range i.Addresses {
			if r.alloc.Hold(s.domain, addr, journal.LeaseRecord(key)) {
				held = append(held, requested{key, addr})
			}
		}
	}
	return held
}

// dropRequested releases held addresses that their interfaces did not get.
func (r *round) dropRequested(s *space, held []requested) {
	for _, b := range held {
		l := r.leases[b.key]
		got := l != nil && l.Namespace == s.name && l.Has([]netip.Addr{b.addr})
		if !got && r.alloc.Owner(s.domain, b.addr) == journal.LeaseRecord(b.key) {
			r.alloc.Release(s.domain, b.addr)
		}
	}
}
