package state

import (
	"reflect"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// PutGateway adds or replaces a gateway.
func (tx *Tx) PutGateway(g *coe.Gateway) {
	tx.gateways(g.Node.String(), g)
}

// DeleteGateway deletes the gateway of a node.
func (tx *Tx) DeleteGateway(node string) { tx.gateways(node) }

// HasGateway reports whether there is a gateway of a node.
func (tx *Tx) HasGateway(node string) bool {
	return slices.ContainsFunc(tx.store.gateways, func(g *coe.Gateway) bool { return g.Node.String() == node })
}

// gateways replaces the gateway of a node in a copy of the list, because views share it.
func (tx *Tx) gateways(node string, now ...*coe.Gateway) {
	if len(now) == 1 && slices.ContainsFunc(tx.store.gateways, func(g *coe.Gateway) bool { return reflect.DeepEqual(g, now[0]) }) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(tx.store.gateways), func(g *coe.Gateway) bool { return g.Node.String() == node })
	tx.store.gateways = slices.SortedFunc(slices.Values(append(rest, now...)), func(a, b *coe.Gateway) int { return a.Node.Compare(b.Node) })
	tx.cluster = true
	for name, ns := range tx.store.namespaces { // their services may be at gateways
		if len(ns.services) > 0 {
			tx.dirty[name] = true
		}
	}
}

// Gateways returns the gateways, sorted by node. They must not be changed.
func (s *Store) Gateways() []*coe.Gateway {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gateways
}
