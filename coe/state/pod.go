package state

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// PodState is the reported and chosen state of one pod.
type PodState struct {
	Pod    *coe.Pod // nil if no origin reports it
	Origin coe.Origin
	// Leases are the leases of its interfaces, in their order.
	Leases []*coe.Lease
	// Refused is true if an interface was refused a lease.
	Refused bool
}

// Pod returns the state of the pod with a UID. Unlike View, its cost does not depend on the
// size of the namespace.
func (s *Store) Pod(uid string) PodState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range slices.Backward(s.layers) {
		if p := l.pods[uid]; p != nil {
			return s.podState(p, l.origin)
		}
	}
	return PodState{}
}

// LeasesOf returns the leases of a pod, even if no origin has reported the pod yet.
func (s *Store) LeasesOf(uid string) []*coe.Lease {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.leases[uid]
}

// replaceLease replaces a lease by others, or none. It does not change slices that LeasesOf has
// returned. The caller holds the lock.
func (s *Store) replaceLease(namespace string, key coe.LeaseKey, by ...*coe.Lease) {
	for _, l := range s.leases[key.PodUID] {
		if l.Namespace != namespace || l.Key() != key {
			by = append(by, l)
		}
	}
	if s.leases[key.PodUID] = by; len(by) == 0 {
		delete(s.leases, key.PodUID)
	}
}

func (s *Store) podState(p *coe.Pod, origin coe.Origin) PodState {
	state := PodState{Pod: p, Origin: origin}
	ns := s.namespaces[p.Namespace]
	if ns == nil {
		return state
	}
	for _, i := range p.AllInterfaces() {
		key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
		if l := ns.leases[key]; l != nil {
			state.Leases = append(state.Leases, l)
		}
		if _, refused := ns.refusals[key]; refused {
			state.Refused = true
		}
	}
	return state
}
