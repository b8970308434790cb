package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// rebuildNodes replaces the node table, and returns the former one. If two nodes have the same
// address, the recorded first owner keeps it (NodeFact.Owner). Without a record, the node of
// the higher layer has it, then the node with the lower UID.
func (s *Store) rebuildNodes() (before map[netip.Addr]*coe.Node) {
	all := s.allNodes()
	nodes := make(map[netip.Addr]*coe.Node, len(all))
	for _, n := range all {
		addr := n.Address()
		if holder := nodes[addr]; holder == nil && s.mayHold(addr, n) || holder != nil && s.owns(addr, n) && !s.owns(addr, holder) {
			nodes[addr] = n
		}
	}
	s.contested = nil
	for _, n := range all {
		if holder := nodes[n.Address()]; holder != nil && holder.Identity() != n.Identity() {
			s.contested = append(s.contested, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.AddressTaken, Message: fmt.Sprintf(
					"its address %s is the address of node %s, which had it first: pods on it get no network; correct the address of one of the nodes",
					n.Address(), holder.Identity()),
			})
		}
	}
	before, s.nodes = s.nodes, nodes
	return before
}

// allNodes returns the nodes with an address: higher layers first, then by UID.
func (s *Store) allNodes() (all []*coe.Node) {
	for _, l := range slices.Backward(s.layers) {
		for _, n := range sortedBy(l.nodes, func(n *coe.Node) string { return n.UID }) {
			if n.Address().IsValid() {
				all = append(all, n)
			}
		}
	}
	return all
}

// owns reports whether a node is recorded as the first that had the address.
func (s *Store) owns(addr netip.Addr, n *coe.Node) bool {
	fact := s.numbers[addr]
	return fact != nil && fact.Owner == n.Identity()
}

// mayHold reports whether a node may get a free address. Until every origin is complete, the
// recorded owner may still appear.
func (s *Store) mayHold(addr netip.Addr, n *coe.Node) bool {
	fact := s.numbers[addr]
	return fact == nil || fact.Owner == "" || fact.Owner == n.Identity() || len(s.incomplete) == 0
}

// isolatedEdge returns Networks.IsolatedEdge of a node.
func (s *Store) isolatedEdge(node netip.Addr) netip.Addr {
	return s.networks.IsolatedEdge(s.numbers[node])
}

// markELANs marks the namespaces with elan-instances whose names begin so.
func (tx *Tx) markELANs(prefix string) {
	for name, ns := range tx.store.namespaces {
		for elan := range ns.elans {
			if strings.HasPrefix(elan, prefix) {
				tx.dirty[name] = true
				break
			}
		}
	}
}
