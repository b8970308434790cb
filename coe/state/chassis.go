package state

import (
	"maps"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// PutChassis adds or replaces the chassis of a node.
func (tx *Tx) PutChassis(c *coe.Chassis) {
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

// SetChassisOfOVN replaces what ChassisOfOVN returns; nil says that they are followed, and not known yet.
func (tx *Tx) SetChassisOfOVN(hosts map[string]string) {
	tx.cluster = tx.cluster || !tx.store.followsOVN || (hosts == nil) != (tx.store.inOVN == nil) || !maps.Equal(hosts, tx.store.inOVN)
	tx.store.inOVN, tx.store.followsOVN = hosts, true
}

// ChassisOfOVN returns the chassis that OVN has: the host name of each, by its name. It is nil while it is not known. followed reports
// whether the bridge reads it from OVN. The map must not be changed.
func (s *Store) ChassisOfOVN() (hosts map[string]string, followed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.inOVN, s.followsOVN
}
