package ipam

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// brings reports whether the source says an address of the pod.
func brings(p *coe.Pod) bool {
	for _, i := range p.Interfaces {
		if len(i.Addresses) > 0 {
			return true
		}
	}
	return false
}

// brought is an address that an interface brings.
type brought struct {
	key  coe.LeaseKey
	addr netip.Addr
}

// claimBrought claims for the pods that bring addresses. All of these are held
// before the first is claimed, lest one becomes the gateway of a block that is
// carved around another.
func (r *round) claimBrought() {
	held := map[*coe.Pod][]brought{}
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if brings(p) {
				held[p] = r.holdBrought(s, p)
			}
		}
	}
	for _, s := range r.spaces {
		for _, p := range s.todo {
			if brings(p) {
				r.claimPod(s, p)
				r.dropBrought(s, held[p])
			}
		}
	}
}

// holdBrought holds the addresses that a pod brings and that nobody has.
func (r *round) holdBrought(s *space, p *coe.Pod) (held []brought) {
	for _, i := range p.Interfaces {
		key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
		for _, addr := range i.Addresses {
			if r.alloc.Hold(s.domain, addr, leaseRecord(key)) {
				held = append(held, brought{key, addr})
			}
		}
	}
	return held
}

// dropBrought gives up what was held for interfaces that did not get it.
func (r *round) dropBrought(s *space, held []brought) {
	for _, b := range held {
		l := r.leases[b.key]
		got := l != nil && l.Namespace == s.name && l.Has([]netip.Addr{b.addr})
		if !got && r.alloc.Owner(s.domain, b.addr) == leaseRecord(b.key) {
			r.alloc.Release(s.domain, b.addr)
		}
	}
}
