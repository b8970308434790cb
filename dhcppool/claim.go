package dhcppool

import (
	"fmt"
	"net/netip"
)

// Gateways of addresses that are neither in a pool nor in the node's pod-cidr: link-local
// addresses, which several ELANs may share.
var (
	LinkGateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	LinkGateway6 = netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1})
)

// Claim is a request for one given address.
type Claim struct {
	ELAN    ELAN
	Holder  ELAN   // of the block around the address; zero: the ELAN itself
	Network string // of the pools that serve the ELAN; empty if there are none
	Address netip.Addr
	Owner   string
	NodeNet netip.Prefix // the node's pod-cidr; may be zero
}

// Claim gives the owner the requested address: in a block of the holder if there is one or one
// can be carved, else behind a block of the ELAN that contains only a gateway. An owner that holds the
// address already may claim it for another ELAN. The error is a *TakenError or an
// *InvalidError; then nothing has changed.
func (a *Allocator) Claim(c Claim) (Block, error) {
	if c.Holder == (ELAN{}) {
		c.Holder = c.ELAN
	}
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
	case cover != nil && cover.ELAN != c.Holder:
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

// refuse returns why an interface cannot have an address; empty if it can.
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

// inside reports whether an interface of a subnet may have an address.
func inside(p netip.Prefix, addr netip.Addr) bool {
	first, last := usable(p)
	return first.Compare(addr) <= 0 && addr.Compare(last) <= 0
}

// carveAround gives the holder the block of a pool around the requested address, of the first
// size or the largest smaller one that is free. It returns nil if there is none.
func (a *Allocator) carveAround(d *domain, c Claim, p Pool) *block {
	due, smallest := firstSizes(c.Holder, p)
	for bits := due; bits <= smallest; bits++ {
		prefix := netip.PrefixFrom(c.Address, bits).Masked()
		if !inside(prefix, c.Address) || d.blocks.overlap(prefix) != nil || a.networks[p.Network].overlap(prefix) != nil {
			continue
		}
		if b := a.newBlock(d, c.Holder, p, prefix, c.Address); b != nil {
			a.insert(b)
			return b
		}
	}
	return nil
}

// single returns the block that contains only the gateway of the requested address.
func (a *Allocator) single(d *domain, c Claim) *block {
	gateway := a.singleGateway(d, c)
	if b := a.blocks[blockKey{c.ELAN.Name, host(gateway)}]; b != nil {
		return b
	}
	b := &block{Block: Block{ELAN: c.ELAN, Prefix: host(gateway), Gateway: gateway}}
	a.insert(b)
	return b
}

// singleGateway returns the first address of the node's pod-cidr, if the pod-cidr contains the
// requested address and the first address can be a gateway; else a link-local address.
func (a *Allocator) singleGateway(d *domain, c Claim) netip.Addr {
	link := LinkGateway4
	if c.Address.Is6() {
		link = LinkGateway6
	}
	if !c.NodeNet.IsValid() || !c.NodeNet.Contains(c.Address) {
		return link
	}
	gateway, _ := usable(c.NodeNet.Masked())
	if _, held := d.held[gateway]; held || gateway == c.Address || unusable(gateway) != "" || !a.canBeGateway(c.ELAN, gateway) {
		return link
	}
	if cover := d.blocks.overlap(host(gateway)); cover != nil && (gateway == cover.Gateway || !inside(cover.Prefix, gateway)) {
		return link
	}
	return gateway
}
