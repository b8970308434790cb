package dhcppool

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Prefix lengths of the blocks of pools that serve several ELANs: of an ELAN's first block,
// and of the smallest block, which has a gateway and one other address.
const (
	firstBits4, smallestBits4 = 29, 30
	firstBits6, smallestBits6 = 120, 126
)

// nodeBits4 is the prefix length of the largest first block of a node, as that of the pod-cidrs of Kubernetes by default. A kubelet runs 110
// pods by default, and addresses rest when pods are gone. Each further block has a gateway that costs the backend.
const nodeBits4 = 24

// size is a size of blocks in a subnet. Its hint is the first address where a block of this
// size may be free; the zero address if there is none.
type size struct {
	subnet netip.Prefix
	bits   int
}

// Allocate chooses an address for the owner from the network's pools of one family: from the
// blocks of the ELAN, else from a new block, else from the blocks of others. The error is an *ExhaustedError.
func (a *Allocator) Allocate(elan ELAN, network string, v6 bool, owner string, others ...ELAN) (netip.Addr, Block, error) {
	d := a.domain(elan.Domain)
	var tried []Pool
	for _, p := range a.pools[network] {
		if p.Subnet.Addr().Is6() != v6 {
			continue
		}
		tried = append(tried, p)
		addr, b := a.fromBlocks(d, elan, p)
		if b == nil {
			addr, b = a.carve(d, elan, p)
		}
		if b != nil {
			a.hold(d, addr, owner, b)
			return addr, b.Block, nil
		}
	}
	for _, other := range others {
		for _, p := range tried {
			if addr, b := a.fromBlocks(d, other, p); b != nil {
				a.hold(d, addr, owner, b)
				return addr, b.Block, nil
			}
		}
	}
	return netip.Addr{}, Block{}, &ExhaustedError{network, elan.Name, tried}
}

// AllocateSingle chooses an address that belongs to no ELAN, such as the address of a
// service. The error is an *ExhaustedError.
func (a *Allocator) AllocateSingle(domain, network, owner string) (netip.Addr, error) {
	d := a.domain(domain)
	for _, p := range a.pools[network] {
		key := poolKey{network, p.Subnet}
		if a.singles[key] == nil {
			a.singles[key] = addressesOf(p.Subnet, p)
		}
		addr, found := a.singles[key].take(func(x netip.Addr) bool {
			return d.free(x) && x != p.Gateway && d.blocks.overlap(host(x)) == nil
		})
		if found {
			a.hold(d, addr, owner, nil)
			return addr, nil
		}
	}
	return netip.Addr{}, &ExhaustedError{Network: network, Pools: slices.Clone(a.pools[network])}
}

// fromBlocks takes an address from the blocks of the ELAN. It prefers an address that was
// never handed out.
func (a *Allocator) fromBlocks(d *domain, elan ELAN, p Pool) (netip.Addr, *block) {
	free := func(x netip.Addr) bool { return d.free(x) && x != p.Gateway }
	for _, take := range []func(*sequence[netip.Addr], func(netip.Addr) bool) (netip.Addr, bool){
		(*sequence[netip.Addr]).takeNew, (*sequence[netip.Addr]).takeFreed,
	} {
		for _, b := range a.elans[elan.Name] {
			if b.Network != p.Network || b.Subnet != p.Subnet || b.addresses == nil {
				continue
			}
			if addr, found := take(b.addresses, free); found {
				return addr, b
			}
		}
	}
	return netip.Addr{}, nil
}

// carve gives the ELAN a new block of a pool, of the due size or the largest smaller one that
// is free, and takes an address from it.
func (a *Allocator) carve(d *domain, elan ELAN, p Pool) (netip.Addr, *block) {
	due, smallest := a.sizes(elan, p)
	for bits := due; bits <= smallest; bits++ {
		if addr, b := a.carveSize(d, elan, p, bits); b != nil {
			return addr, b
		}
	}
	return netip.Addr{}, nil
}

// sizes returns the prefix length of the ELAN's next block, and of the smallest block that it
// may get instead. The first block is a /29 (IPv6: /120), but nodes get larger ones (nodeBits). With IPv4, each further
// block has twice the size of the ELAN's largest block; with IPv6, the same size.
func (a *Allocator) sizes(elan ELAN, p Pool) (due, smallest int) {
	due, smallest = firstSizes(elan, p)
	if elan.OfNode() {
		taken, all := a.Taken(p)
		due = p.nodeBits(due, all-taken, max(a.Nodes, 1))
	}
	for _, b := range a.elans[elan.Name] {
		if b.Network == p.Network && b.Subnet == p.Subnet {
			due = min(due, p.larger(b.Prefix.Bits()))
		}
	}
	return due, smallest
}

// larger returns the prefix length of the block that follows one of a prefix length.
func (p Pool) larger(bits int) int {
	if p.Subnet.Addr().Is4() {
		bits--
	}
	return max(bits, p.Subnet.Bits())
}

// nodeBits returns the prefix length of a block of a node that would have another one as a block of an ELAN: with IPv4, as large as
// half of what is free for each node, but at most nodeBits4.
func (p Pool) nodeBits(bits int, free float64, nodes int) int {
	for p.Subnet.Addr().Is4() && bits > nodeBits4 && p.sizeOf(bits-1)*2*float64(nodes) <= free {
		bits--
	}
	return bits
}

// firstSizes is sizes for an ELAN without a block of the pool. If a pool serves one ELAN, it
// is one block, unless it was widened while the ELAN held a part of it.
func firstSizes(elan ELAN, p Pool) (due, smallest int) {
	whole := p.Subnet.Bits()
	due, smallest = firstBits4, smallestBits4
	if p.Subnet.Addr().Is6() {
		due, smallest = firstBits6, smallestBits6
	}
	if p.Network == elan.Name || p.Network == elan.Own {
		due = whole
	}
	return max(due, whole), max(smallest, whole)
}

// carveSize gives the ELAN the first free block of one size that has a free address.
func (a *Allocator) carveSize(d *domain, elan ELAN, p Pool, bits int) (netip.Addr, *block) {
	hints, key := a.hints[p.Network], size{p.Subnet, bits}
	if hints == nil {
		hints = map[size]netip.Addr{}
		a.hints[p.Network] = hints
	}
	start, hinted := hints[key]
	if !hinted {
		start = p.From
	} else if !start.IsValid() {
		return netip.Addr{}, nil
	}
	hints[key] = netip.Addr{}
	for c := netip.PrefixFrom(start, bits).Masked(); c.IsValid() && c.Addr().Compare(p.To) <= 0; {
		if other := a.networks[p.Network].overlap(c); other != nil {
			c = after(larger(c, other.Prefix), bits)
			continue
		}
		if !hints[key].IsValid() {
			hints[key] = c.Addr()
		}
		if other := d.blocks.overlap(c); other != nil {
			c = after(larger(c, other.Prefix), bits)
			continue
		}
		if addr, b := a.newBlock(d, elan, p, c).first(d); b != nil {
			a.insert(b)
			return addr, b
		}
		c = after(c, bits)
	}
	return netip.Addr{}, nil
}

// lowerHints lowers the hints to the place of a removed block.
func (a *Allocator) lowerHints(b *block) {
	hints := a.hints[b.Network]
	for key, hint := range hints {
		if !key.subnet.Overlaps(b.Prefix) {
			continue
		}
		freed := netip.PrefixFrom(b.Prefix.Addr(), key.bits).Masked().Addr()
		if freed.Less(key.subnet.Addr()) { // carved from a former, wider pool
			freed = key.subnet.Addr()
		}
		if !hint.IsValid() || freed.Less(hint) {
			hints[key] = freed
		}
	}
}

func larger(p, q netip.Prefix) netip.Prefix {
	if q.Bits() < p.Bits() {
		return q
	}
	return p
}

// newBlock returns a block for the ELAN. It returns nil if no address of the block can be its
// gateway, or if its network or broadcast address is held. An address in except is not used
// as gateway.
func (a *Allocator) newBlock(d *domain, elan ELAN, p Pool, prefix netip.Prefix, except ...netip.Addr) *block {
	fits := func(x netip.Addr) bool { return d.free(x) && !slices.Contains(except, x) && a.canBeGateway(elan, x) }
	gateway, found := gatewayOf(p, prefix, fits)
	if !found || !d.edgesFree(prefix) {
		return nil
	}
	return &block{
		Block:     Block{ELAN: elan, Prefix: prefix, Gateway: gateway, Network: p.Network, Subnet: p.Subnet},
		pool:      p,
		addresses: addressesOf(prefix, p),
	}
}

// edgesFree reports whether the network and broadcast address of a prefix are free.
func (d *domain) edgesFree(p netip.Prefix) bool {
	last := netipx.PrefixLastIP(p)
	return (inside(p, p.Addr()) || d.free(p.Addr())) && (inside(p, last) || d.free(last))
}

// first takes an address from a new block. It returns a nil block if there is none.
func (b *block) first(d *domain) (netip.Addr, *block) {
	if b == nil || b.addresses == nil {
		return netip.Addr{}, nil
	}
	addr, found := b.addresses.takeNew(func(x netip.Addr) bool {
		return d.free(x) && x != b.pool.Gateway && x != b.Gateway
	})
	if !found {
		return netip.Addr{}, nil
	}
	return addr, b
}

// gatewayOf returns the pool's gateway if it is in the block and fits, else the block's first address
// that can be handed out and fits.
func gatewayOf(p Pool, prefix netip.Prefix, fits func(netip.Addr) bool) (netip.Addr, bool) {
	first, last := usable(prefix)
	if first.Compare(p.Gateway) <= 0 && p.Gateway.Compare(last) <= 0 && fits(p.Gateway) {
		return p.Gateway, true
	}
	addresses := addressesOf(prefix, p)
	if addresses == nil {
		return netip.Addr{}, false
	}
	return addresses.takeNew(func(x netip.Addr) bool { return x != p.Gateway && fits(x) })
}

// BlockBits returns the prefix length of an ELAN's first block, in a pool that serves several
// ELANs.
func (p Pool) BlockBits() int {
	due, _ := firstSizes(ELAN{}, p)
	return due
}

// Blocks returns the number of blocks of BlockBits in the pool's range. The first and the last
// may have fewer addresses than the others.
func (p Pool) Blocks() float64 { return p.addresses(p.BlockBits()) / p.sizeOf(p.BlockBits()) }

// distance returns b minus a, for two addresses of one family.
func distance(a, b netip.Addr) float64 {
	x, y := a.As16(), b.As16()
	high := float64(binary.BigEndian.Uint64(y[:8]) - binary.BigEndian.Uint64(x[:8]))
	return high*math.Exp2(64) + float64(binary.BigEndian.Uint64(y[8:])) - float64(binary.BigEndian.Uint64(x[8:]))
}
