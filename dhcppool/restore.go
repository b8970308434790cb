package dhcppool

import "fmt"

// RestoreBlock says that an elan holds a block.
func (a *Allocator) RestoreBlock(b Block) error {
	d := a.domain(b.ELAN.Domain)
	switch {
	case a.blocks[blockKey{b.ELAN.Name, b.Prefix}] != nil:
		return fmt.Errorf("restore block %s of %s: it is there already", b.Prefix, b.ELAN.Name)
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

// RestoreAddress says that somebody holds an address; its block, if it names
// one, must be there, as must all others be.
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
		return fmt.Errorf("restore address %s: %s holds no block %s", h.Address, h.ELAN, h.Prefix)
	}
	a.hold(d, h.Address, h.Owner, b)
	return nil
}
