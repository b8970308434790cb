package dhcppool

import (
	"cmp"
	"net/netip"
	"slices"
)

// ELAN is a layer 2 network that gets addresses, or a node that gets them for all its networks.
type ELAN struct {
	Name string
	// Domain is the address space in which its addresses are unique.
	Domain string
	// Own, of a node only, is a network whose pools serve the node alone, beside the network that has its name.
	Own string
}

// OfNode reports whether the ELAN is a node.
func (e ELAN) OfNode() bool { return e.Own != "" }

// Block is a prefix that an ELAN holds.
type Block struct {
	ELAN    ELAN
	Prefix  netip.Prefix
	Gateway netip.Addr
	// Network and Subnet name the pool that it was carved from. Network is empty for a
	// block that contains only a gateway: addresses behind it have host routes.
	Network string
	Subnet  netip.Prefix
}

// Held is an address with its owner.
type Held struct {
	Domain  string
	Address netip.Addr
	Owner   string
	// ELAN and Prefix name the block through which the address is reached; empty if it is
	// reached through none.
	ELAN   string
	Prefix netip.Prefix
}

// Allocator gives addresses to ELANs, from pools that it carves into blocks. It keeps these
// laws: an address of a domain has at most one owner; the blocks of a domain do not overlap,
// nor do the blocks of one network; an address that it chooses is in its block and in its
// pool's range, and is not a gateway, network or broadcast address.
type Allocator struct {
	// GatewayFits, if not nil, reports whether a new block of an ELAN can have a gateway.
	GatewayFits func(ELAN, netip.Addr) bool
	// Nodes is how many nodes may get blocks.
	Nodes int

	given    map[string][]Pool // by network, in the order of use
	pools    map[string][]Pool // the same, with absent bounds filled in
	domains  map[string]*domain
	networks map[string]spans // blocks by the network that they were carved from
	blocks   map[blockKey]*block
	elans    map[string]spans                  // blocks of pools, by ELAN
	empty    map[*block]bool                   // blocks without an owner of an address
	hints    map[string]map[size]netip.Addr    // by network; see size
	singles  map[poolKey]*sequence[netip.Addr] // of pools that are not carved
	carved   map[poolKey]float64               // addresses in blocks
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

type poolKey struct {
	network string
	subnet  netip.Prefix
}

// domain is one address space.
type domain struct {
	blocks   spans
	held     map[netip.Addr]hold
	gateways map[netip.Addr]int // number of blocks with this gateway
}

type hold struct {
	owner string
	block *block // nil if the address is reached through none
}

type block struct {
	Block
	holders int // number of held addresses
	pool    Pool
	// addresses are the addresses to hand out; nil if the block's pool does not exist.
	addresses *sequence[netip.Addr]
}

// NewAllocator returns an allocator without pools.
func NewAllocator() *Allocator {
	return &Allocator{
		pools:    map[string][]Pool{},
		domains:  map[string]*domain{},
		networks: map[string]spans{},
		blocks:   map[blockKey]*block{},
		elans:    map[string]spans{},
		empty:    map[*block]bool{},
		hints:    map[string]map[size]netip.Addr{},
		singles:  map[poolKey]*sequence[netip.Addr]{},
		carved:   map[poolKey]float64{},
	}
}

// Release takes an address back from its owner; it does nothing if it has none. A block
// without held addresses stays until Sweep.
func (a *Allocator) Release(domain string, addr netip.Addr) {
	d := a.domain(domain)
	h, found := d.held[addr]
	if !found {
		return
	}
	delete(d.held, addr)
	a.leave(h.block)
	a.giveBack(d, addr)
}

// Pass gives a held address to another owner.
func (a *Allocator) Pass(domain string, addr netip.Addr, owner string) {
	d := a.domain(domain)
	if h, found := d.held[addr]; found {
		d.held[addr] = hold{owner, h.block}
	}
}

// Hold records the owner of an address that was chosen elsewhere and is reached through no
// block. It returns false if the address is held already or is a gateway.
func (a *Allocator) Hold(domain string, addr netip.Addr, owner string) bool {
	d := a.domain(domain)
	if !d.free(addr) {
		return false
	}
	a.hold(d, addr, owner, nil)
	return true
}

// Owner returns the owner of an address; empty if it has none.
func (a *Allocator) Owner(domain string, addr netip.Addr) string {
	return a.domain(domain).held[addr].owner
}

// Through returns the block through which a held address is reached; false if there is none.
func (a *Allocator) Through(domain string, addr netip.Addr) (Block, bool) {
	if b := a.domain(domain).held[addr].block; b != nil {
		return b.Block, true
	}
	return Block{}, false
}

// Around returns the block of a pool that contains an address; false if there is none.
func (a *Allocator) Around(domain string, addr netip.Addr) (Block, bool) {
	if b := a.domain(domain).blocks.overlap(host(addr)); b != nil {
		return b.Block, true
	}
	return Block{}, false
}

// leave removes one held address from a block's count.
func (a *Allocator) leave(b *block) {
	if b == nil {
		return
	}
	b.holders--
	if b.holders == 0 {
		a.empty[b] = true
	}
}

// giveBack allows that a free address is handed out again.
func (a *Allocator) giveBack(d *domain, addr netip.Addr) {
	if b := d.blocks.overlap(host(addr)); b != nil && b.addresses != nil {
		b.addresses.giveBack(addr)
	}
	for key, s := range a.singles {
		if key.subnet.Contains(addr) {
			s.giveBack(addr)
		}
	}
}

// hold records the owner of an address, and the block through which it is reached.
func (a *Allocator) hold(d *domain, addr netip.Addr, owner string, b *block) {
	d.held[addr] = hold{owner, b}
	if b != nil {
		b.holders++
		delete(a.empty, b)
	}
}

// Sweep removes the blocks without held addresses, and returns them, sorted.
func (a *Allocator) Sweep() []Block {
	swept := make([]Block, 0, len(a.empty))
	for b := range a.empty {
		a.remove(b)
		swept = append(swept, b.Block)
	}
	a.empty = map[*block]bool{} // a cleared map takes as long to walk as when it was full
	slices.SortFunc(swept, compareBlocks)
	return swept
}

func compareBlocks(a, b Block) int {
	return cmp.Or(cmp.Compare(a.ELAN.Name, b.ELAN.Name), a.Prefix.Compare(b.Prefix))
}

func (a *Allocator) insert(b *block) {
	d := a.domain(b.ELAN.Domain)
	d.gateways[b.Gateway]++
	a.blocks[blockKey{b.ELAN.Name, b.Prefix}] = b
	if b.Network != "" {
		d.blocks = d.blocks.insert(b)
		a.networks[b.Network] = a.networks[b.Network].insert(b)
		a.elans[b.ELAN.Name] = a.elans[b.ELAN.Name].insert(b)
		a.carved[poolKey{b.Network, b.Subnet}] += sizeOf(b.Prefix)
	}
	a.empty[b] = true
}

func (a *Allocator) remove(b *block) {
	d := a.domain(b.ELAN.Domain)
	delete(a.blocks, blockKey{b.ELAN.Name, b.Prefix})
	if d.gateways[b.Gateway]--; d.gateways[b.Gateway] == 0 {
		delete(d.gateways, b.Gateway)
	}
	if b.Network != "" {
		d.blocks = d.blocks.remove(b)
		shrink(a.networks, b.Network, b)
		shrink(a.elans, b.ELAN.Name, b)
		a.carved[poolKey{b.Network, b.Subnet}] -= sizeOf(b.Prefix)
		a.lowerHints(b)
	}
	a.giveBack(d, b.Gateway)
}

func shrink(table map[string]spans, key string, b *block) {
	if table[key] = table[key].remove(b); len(table[key]) == 0 {
		delete(table, key)
	}
}

func (a *Allocator) domain(name string) *domain {
	d := a.domains[name]
	if d == nil {
		d = &domain{held: map[netip.Addr]hold{}, gateways: map[netip.Addr]int{}}
		a.domains[name] = d
	}
	return d
}

// free reports whether an address is neither held nor a gateway.
func (d *domain) free(addr netip.Addr) bool {
	_, held := d.held[addr]
	return !held && d.gateways[addr] == 0
}

// canBeGateway reports whether a free address can be the gateway of a new block.
func (a *Allocator) canBeGateway(elan ELAN, addr netip.Addr) bool {
	return a.GatewayFits == nil || a.GatewayFits(elan, addr)
}

func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
