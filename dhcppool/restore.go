package dhcppool

import "fmt"

// RestoreBlock adds a block that an ELAN held before a restart. It fails if the block overlaps
// another one.
func (a *Allocator) RestoreBlock(b Block) error {
	d := a.domain(b.ELAN.Domain)
	switch {
	case a.blocks[blockKey{b.ELAN.Name, b.Prefix}] != nil:
		return fmt.Errorf("restore block %s of %s: it exists already", b.Prefix, b.ELAN.Name)
	case b.Network == "":
		a.insert(&block{Block: b})
		return nil
	}
	for _, blocks := range []spans{d.blocks, a.networks[b.Network]} {
		if other := blocks.overlap(b.Prefix); other != nil {
			return fmt.Errorf("restore block %s of %s: overlaps block %s of %s",
				b.Prefix, b.ELAN.Name, other.Prefix, other.ELAN.Name)
		}
	}
	restored := &block{Block: b}
	a.follow(restored)
	a.insert(restored)
	return nil
}

// RestoreAddress adds an address that was held before a restart. All blocks must be restored
// before. The error is a *TakenError, an *InvalidError, or reports a missing block.
func (a *Allocator) RestoreAddress(h Held) error {
	d := a.domain(h.Domain)
	if other, taken := d.held[h.Address]; taken {
		return &TakenError{h.Address, other.owner}
	}
	if d.gateways[h.Address] > 0 {
		return &InvalidError{h.Address, "is the gateway of other addresses"}
	}
	if h.ELAN == "" {
		a.hold(d, h.Address, h.Owner, nil)
		return nil
	}
	b := a.blocks[blockKey{h.ELAN, h.Prefix}]
	if b == nil {
		return fmt.Errorf("restore address %s: %s has no block %s", h.Address, h.ELAN, h.Prefix)
	}
	a.hold(d, h.Address, h.Owner, b)
	return nil
}
