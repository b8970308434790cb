package coe

import "net/netip"

// NodeUse is what the pods on a node use.
type NodeUse struct {
	Interfaces int // of its pods
	Resting    int // leases of interfaces that are gone, and Formers: their addresses are kept for a while
}

// NodeUse returns what the pods on the node of an address use.
func (s *Store) NodeUse(node netip.Addr) NodeUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.use[node]
}

// countUse adds to what is used on a node. The lock is held.
func (s *Store) countUse(node netip.Addr, interfaces, resting int) {
	u := s.use[node]
	u.Interfaces += interfaces
	u.Resting += resting
	if s.use[node] = u; u == (NodeUse{}) {
		delete(s.use, node)
	}
}

// countRest adds a lease, by -1 takes it away, where its address rests. The lock is held.
func (s *Store) countRest(l *Lease, by int) {
	if l != nil && l.Released != 0 {
		s.countUse(l.Node, 0, by)
	}
}

// Former names an address that a lease gave up while its interface lives on. The address
// is kept for a while.
type Former struct {
	PodUID, InterfaceUID, Namespace string
	Address                         netip.Addr
}

// PutFormer records that an address on a node is kept.
func (tx *Tx) PutFormer(f Former, node netip.Addr) {
	tx.DeleteFormer(f)
	tx.store.formers[f] = node
	tx.store.countUse(node, 0, +1)
}

// DeleteFormer forgets an address that was kept.
func (tx *Tx) DeleteFormer(f Former) {
	if node, found := tx.store.formers[f]; found {
		delete(tx.store.formers, f)
		tx.store.countUse(node, 0, -1)
	}
}

// ForgetFormers forgets all Formers.
func (tx *Tx) ForgetFormers() {
	for f := range tx.store.formers {
		tx.DeleteFormer(f)
	}
}

// interfaces is how many interfaces the pod has, the implied one included.
func (p *Pod) interfaces() int { return max(1, len(p.Interfaces)) }
