package coe

import "slices"

// PodState is what is said and what was chosen of one pod.
type PodState struct {
	Pod    *Pod // nil when nobody speaks of it
	Origin Origin
	// Leases are those of its interfaces that have one, in their order.
	Leases []*Lease
	// Refused tells that an interface was refused a lease.
	Refused bool
}

// Pod is the state of the pod of a uid. Unlike a View it costs the same in a
// namespace of any size.
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

// LeasesOf are the leases of a pod, whether anybody speaks of that pod or not: a source
// may not have said yet what it knows.
func (s *Store) LeasesOf(uid string) []*Lease {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.leases[uid]
}

// replaceLease puts others, or none, in the place of a lease. What LeasesOf has returned
// does not change. The lock is held.
func (s *Store) replaceLease(namespace string, key LeaseKey, by ...*Lease) {
	for _, l := range s.leases[key.PodUID] {
		if l.Namespace != namespace || l.Key() != key {
			by = append(by, l)
		}
	}
	if s.leases[key.PodUID] = by; len(by) == 0 {
		delete(s.leases, key.PodUID)
	}
}

func (s *Store) podState(p *Pod, origin Origin) PodState {
	state := PodState{Pod: p, Origin: origin}
	ns := s.namespaces[p.Namespace]
	if ns == nil {
		return state
	}
	for _, i := range p.AllInterfaces() {
		key := LeaseKey{p.UID, i.UID}
		if l := ns.leases[key]; l != nil {
			state.Leases = append(state.Leases, l)
		}
		if _, refused := ns.refusals[key]; refused {
			state.Refused = true
		}
	}
	return state
}
