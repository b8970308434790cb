package dhcppool

import (
	"fmt"
	"net/netip"
)

// Gateways of addresses that come from no pool, where the node has no pod-cidr
// that holds them: link-local ones, which many elans may share.
var (
	linkGateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	linkGateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})
)

// Claim is the wish for one given address.
type Claim struct {
	ELAN    ELAN
	Network string // whose pools serve the elan; empty when none do
	Address netip.Addr
	Owner   string
	NodeNet netip.Prefix // the node's pod-cidr; may be zero
}

// Claim gives the owner the very address that it wants: in a block of the elan
// where there is one or one can be carved, else behind a gateway alone. An owner
// that holds the address already may claim it for another elan. The error is a
// *TakenError or an *InvalidError, and then nothing has changed.
func (a *Allocator) Claim(c Claim) (Block, error) {
	d := a.domain(c.ELAN.Domain)
	before, held := d.held[c.Address]
	if held && before.owner != c.Owner {
		return Block{}, &TakenError{c.Address, before.owner}
	}
	cover := d.blocks.overlap(host(c.Address))
	pool, pooled := a.poolOf(c.Network, c.Address)
	if why := a.refuse(d, c.Address, cover, pool, pooled); why != "" {
		return Block{}, &InvalidError{c.Address, why}
	}
	b := cover
	switch {
	case cover != nil && cover.ELAN != c.ELAN:
		b = nil
	case cover == nil && pooled:
		b = a.carveAround(d, c, pool)
	}
	if b == nil {
		b = a.single(d, c)
	}
	a.hold(d, c.Address, c.Owner, b)
	if held {
		a.leave(before.block)
	}
	return b.Block, nil
}

// refuse says why an interface can't have an address; empty when it can.
func (a *Allocator) refuse(d *domain, addr netip.Addr, cover *block, pool Pool, pooled bool) string {
	switch why := unusable(addr); {
	case why != "":
		return why
	case cover != nil && addr == cover.Gateway:
		return fmt.Sprintf("is the gateway of block %s of %s", cover.Prefix, cover.ELAN.Name)
	case cover != nil && !inside(cover.Prefix, addr):
		return fmt.Sprintf("is the network or broadcast address of block %s of %s", cover.Prefix, cover.ELAN.Name)
	case d.gateways[addr] > 0:
		return "is the gateway of other addresses"
	case pooled && addr == pool.Gateway:
		return fmt.Sprintf("is the gateway of pool %q", pool.Network)
	case pooled && !inside(pool.Subnet, addr):
		return fmt.Sprintf("is the network or broadcast address of pool %q, subnet %s", pool.Network, pool.Subnet)
	}
	return ""
}

// inside tells whether an interface of a subnet may have an address.
func inside(p netip.Prefix, addr netip.Addr) bool {
	first, last := usable(p)
	return first.Compare(addr) <= 0 && addr.Compare(last) <= 0
}

// carveAround gives the elan the block of a pool that holds the wanted address:
// one of the first size, else the largest smaller one that is free; nil where
// there is none.
func (a *Allocator) carveAround(d *domain, c Claim, p Pool) *block {
	due, smallest := firstSizes(c.ELAN, p)
	for bits := due; bits <= smallest; bits++ {
		prefix := netip.PrefixFrom(c.Address, bits).Masked()
		if !inside(prefix, c.Address) || d.blocks.overlap(prefix) != nil || a.networks[p.Network].overlap(prefix) != nil {
			continue
		}
		if b := newBlock(d, c.ELAN, p, prefix, c.Address); b != nil {
			a.insert(b)
			return b
		}
	}
	return nil
}

// single returns the gateway alone behind which the elan's address is reached.
func (a *Allocator) single(d *domain, c Claim) *block {
	gateway := singleGateway(d, c)
	if b := a.blocks[blockKey{c.ELAN.Name, host(gateway)}]; b != nil {
		return b
	}
	b := &block{Block: Block{ELAN: c.ELAN, Prefix: host(gateway), Gateway: gateway}}
	a.insert(b)
	return b
}

// singleGateway is the first address of the node's pod-cidr where that holds the
// wanted address and is nobody else's, else a link-local one.
func singleGateway(d *domain, c Claim) netip.Addr {
	link := linkGateway4
	if c.Address.Is6() {
		link = linkGateway6
	}
	if !c.NodeNet.IsValid() || !c.NodeNet.Contains(c.Address) {
		return link
	}
	gateway, _ := usable(c.NodeNet.Masked())
	if _, held := d.held[gateway]; held || gateway == c.Address || unusable(gateway) != "" {
		return link
	}
	if cover := d.blocks.overlap(host(gateway)); cover != nil && (gateway == cover.Gateway || !inside(cover.Prefix, gateway)) {
		return link
	}
	return gateway
}
