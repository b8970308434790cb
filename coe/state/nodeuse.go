package state

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// NodeUse counts what the pods of a node use.
type NodeUse struct {
	Interfaces int // of the node's pods
	Resting    int // released leases and Formers, whose addresses are still kept
}

// NodeUse returns what the pods of a node use.
func (s *Store) NodeUse(node netip.Addr) NodeUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.use[node]
}

// countUse adds to the use of a node. The caller holds the lock.
func (s *Store) countUse(node netip.Addr, interfaces, resting int) {
	u := s.use[node]
	u.Interfaces += interfaces
	u.Resting += resting
	if s.use[node] = u; u == (NodeUse{}) {
		delete(s.use, node)
	}
}

// countRest adds by if the lease is released. The caller holds the lock.
func (s *Store) countRest(l *coe.Lease, by int) {
	if l != nil && l.Released != 0 {
		s.countUse(l.Node, 0, by)
	}
}

// PutFormer records a former address on a node.
func (tx *Tx) PutFormer(f coe.Former, node netip.Addr) {
	tx.DeleteFormer(f)
	tx.store.formers[f] = node
	tx.store.countUse(node, 0, +1)
}

// DeleteFormer deletes a former address.
func (tx *Tx) DeleteFormer(f coe.Former) {
	if node, found := tx.store.formers[f]; found {
		delete(tx.store.formers, f)
		tx.store.countUse(node, 0, -1)
	}
}

// ForgetFormers deletes all former addresses.
func (tx *Tx) ForgetFormers() {
	for f := range tx.store.formers {
		tx.DeleteFormer(f)
	}
}

// interfaces returns the number of a pod's interfaces, including an implied one.
func interfaces(p *coe.Pod) int { return max(1, len(p.Interfaces)) }
