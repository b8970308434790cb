package dhcppool

import (
	"maps"
	"net/netip"
	"slices"
)

// State is the content of an allocator except its pools, sorted.
type State struct {
	Blocks []Block
	Held   []Held
}

// State returns the state. Restoring it makes an equal allocator.
func (a *Allocator) State() State {
	var s State
	for _, b := range a.blocks {
		s.Blocks = append(s.Blocks, b.Block)
	}
	slices.SortFunc(s.Blocks, compareBlocks)
	for _, name := range slices.Sorted(maps.Keys(a.domains)) {
		d := a.domains[name]
		for _, addr := range slices.SortedFunc(maps.Keys(d.held), netip.Addr.Compare) {
			h := Held{Domain: name, Address: addr, Owner: d.held[addr].owner}
			if b := d.held[addr].block; b != nil {
				h.ELAN, h.Prefix = b.ELAN.Name, b.Prefix
			}
			s.Held = append(s.Held, h)
		}
	}
	return s
}

// State returns the identifier of every name.
func (i *IDs) State() map[string]uint32 { return maps.Clone(i.byName) }
