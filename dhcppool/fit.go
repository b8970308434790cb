package dhcppool

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// Fits estimates how many pods get an address of the pool before the first one is refused, if a number of holders of blocks
// get pods in turn. Holders are ELANs, or nodes. The result is too large by the addresses that a range which does not begin or
// end with a block takes from its first and last block, and by few more, because blocks are aligned.
func (p Pool) Fits(holders int, nodes bool) float64 {
	if holders <= 0 {
		return 0
	}
	due, smallest := firstSizes(ELAN{}, p)
	left := p.addresses(smallest)
	groups := []fitGroup{{holders: float64(holders), due: due}} // by pods, then in turn
	if p.Subnet.Addr().Is6() {
		rounds := math.Floor(left / (groups[0].holders * p.sizeOf(due)))
		groups[0].pods, left = rounds*p.podsOf(due), math.Mod(left, groups[0].holders*p.sizeOf(due))
	}
	for {
		first := &groups[0]
		bits, n := first.due, math.Floor(left/p.sizeOf(first.due))
		if large := p.nodeBits(bits, left, holders); nodes && large < bits {
			bits, n = large, math.Floor(left/p.sizeOf(large))-2*float64(holders)+1 // until the next size
		}
		for n < 1 && bits < smallest {
			bits++
			n = math.Floor(left / p.sizeOf(bits))
		}
		if n < 1 {
			return fitted(groups)
		}
		n = min(n, first.holders)
		left -= n * p.sizeOf(bits)
		served := fitGroup{n, first.pods + p.podsOf(bits), min(first.due, p.larger(bits))}
		if first.holders -= n; first.holders == 0 {
			groups = groups[1:]
		}
		at, _ := slices.BinarySearchFunc(groups, served.pods, func(g fitGroup, pods float64) int {
			return cmp.Or(cmp.Compare(g.pods, pods), -1) // after its equals
		})
		groups = slices.Insert(groups, at, served)
	}
}

// fitGroup are holders whose blocks serve the same number of pods each.
type fitGroup struct {
	holders, pods float64
	due           int // prefix length of the next block as a block of an ELAN
}

// fitted returns the number of pods when the first group needs a further block and gets none. Each holder with a larger block is
// before the refused one in turn.
func fitted(groups []fitGroup) (pods float64) {
	for _, g := range groups {
		pods += g.holders * min(g.pods, groups[0].pods+1)
	}
	return pods
}

// Taken returns how many addresses of a pool are in blocks, and how many there are. If one block is the whole pool, it returns
// how many of its addresses are held.
func (a *Allocator) Taken(p Pool) (taken, all float64) {
	p = p.normal()
	if b := a.networks[p.Network].overlap(p.Subnet); b != nil && b.Prefix == p.Subnet {
		return float64(b.holders), float64(p.Size())
	}
	_, smallest := firstSizes(ELAN{}, p)
	all = p.addresses(smallest)
	return min(a.carved[poolKey{p.Network, p.Subnet}], all), all
}

// Held returns how many addresses of the blocks of a pool are held, and how many holders have these blocks.
func (a *Allocator) Held(p Pool) (addresses, holders int) {
	p = p.normal()
	elans := map[string]bool{}
	for _, b := range a.networks[p.Network] {
		if b.Subnet == p.Subnet {
			addresses += b.holders
			elans[b.ELAN.Name] = true
		}
	}
	return addresses, len(elans)
}

// addresses returns the number of addresses in the blocks of a prefix length that the range of the pool touches.
func (p Pool) addresses(bits int) float64 {
	n := p.normal()
	first, last := netip.PrefixFrom(n.From, bits).Masked().Addr(), netip.PrefixFrom(n.To, bits).Masked().Addr()
	return distance(first, last) + p.sizeOf(bits)
}

// sizeOf returns the number of addresses in a block of the pool's family.
func (p Pool) sizeOf(bits int) float64 { return sizeOf(netip.PrefixFrom(p.Subnet.Addr(), bits)) }

func sizeOf(p netip.Prefix) float64 { return math.Exp2(float64(p.Addr().BitLen() - p.Bits())) }

// podsOf returns the number of pods in a block: one address is for the gateway, and others name the block itself.
func (p Pool) podsOf(bits int) float64 {
	size := p.sizeOf(bits)
	switch {
	case p.Subnet.Addr().BitLen()-bits < 2:
		return size - 1
	case p.Subnet.Addr().Is6():
		return size - 2
	}
	return size - 3
}
