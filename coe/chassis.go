package coe

import (
	"maps"
	"net/netip"
)

// Chassis is what the agent of a node has reported: the name of the node in OVN.
type Chassis struct {
	Node netip.Addr // internal address; the key
	Name string     // external_ids:system-id of the node's switch
}

// PutChassis adds or replaces the chassis of a node.
func (tx *Tx) PutChassis(c *Chassis) {
	tx.chassis(func(all map[netip.Addr]string) { all[c.Node] = c.Name })
}

// DeleteChassis deletes the chassis of a node.
func (tx *Tx) DeleteChassis(node netip.Addr) {
	tx.chassis(func(all map[netip.Addr]string) { delete(all, node) })
}

// chassis changes a copy, because readers have the map.
func (tx *Tx) chassis(change func(map[netip.Addr]string)) {
	all := maps.Clone(tx.store.chassis)
	if all == nil {
		all = map[netip.Addr]string{}
	}
	if change(all); maps.Equal(all, tx.store.chassis) {
		return
	}
	tx.store.chassis, tx.cluster = all, true
}

// Chassis returns the chassis that agents have reported, by the address of the node. Two nodes can have reported the same one. The
// map must not be changed.
func (s *Store) Chassis() map[netip.Addr]string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.chassis
}
