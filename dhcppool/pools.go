package dhcppool

import (
	"maps"
	"net/netip"
	"slices"
)

// SetPools replaces the pools; they must be valid. Blocks and addresses stay
// with their holders, whatever the pools say; what is chosen from now on follows
// the new ones. It returns the networks whose pools are others than before,
// sorted; it costs what these and their blocks are.
func (a *Allocator) SetPools(pools []Pool) (changed []string) {
	given := make(map[string][]Pool, len(a.given))
	for _, p := range pools {
		given[p.Network] = append(given[p.Network], p)
	}
	for network, now := range given {
		if !slices.EqualFunc(a.given[network], now, Pool.equal) {
			changed = append(changed, network)
		}
	}
	for network := range a.given {
		if len(given[network]) == 0 {
			changed = append(changed, network)
		}
	}
	a.given = given
	slices.Sort(changed)
	for _, network := range changed {
		a.setNetwork(network)
	}
	return changed
}

// setNetwork has a network's blocks and addresses follow the pools that are given.
func (a *Allocator) setNetwork(network string) {
	delete(a.pools, network)
	for _, p := range a.given[network] {
		a.pools[network] = append(a.pools[network], p.normal())
	}
	delete(a.hints, network)
	maps.DeleteFunc(a.singles, func(key poolKey, _ *sequence[netip.Addr]) bool { return key.network == network })
	for _, b := range a.networks[network] {
		a.follow(b)
	}
}

// follow has a block hand out what its pool says now.
func (a *Allocator) follow(b *block) {
	p, found := a.Pool(b.Network, b.Subnet)
	if !found {
		b.pool, b.addresses = Pool{}, nil
		return
	}
	same := b.addresses != nil && p.From == b.pool.From && p.To == b.pool.To && p.Gateway == b.pool.Gateway
	b.pool = p
	if !same {
		b.addresses = addressesOf(b.Prefix, p)
	}
}

// addressesOf is what a pool hands out in a prefix; nil for nothing.
func addressesOf(prefix netip.Prefix, p Pool) *sequence[netip.Addr] {
	from, to := clip(prefix, p.From, p.To)
	if !from.IsValid() {
		return nil
	}
	return newSequence(from, to, netip.Addr.Next, netip.Addr.Compare)
}

// Blocks returns the blocks that were carved from a network's pools, sorted by
// prefix.
func (a *Allocator) Blocks(network string) []Block {
	blocks := make([]Block, len(a.networks[network]))
	for n, b := range a.networks[network] {
		blocks[n] = b.Block
	}
	return blocks
}

// Pool returns a pool, with its absent bounds filled in.
func (a *Allocator) Pool(network string, subnet netip.Prefix) (Pool, bool) {
	for _, p := range a.pools[network] {
		if p.Subnet == subnet {
			return p, true
		}
	}
	return Pool{}, false
}

// Serving returns the first of the networks that has a pool.
func (a *Allocator) Serving(networks ...string) (string, bool) {
	for _, n := range networks {
		if len(a.pools[n]) > 0 {
			return n, true
		}
	}
	return "", false
}

// Serves tells whether a network has a pool of IPv4 or IPv6.
func (a *Allocator) Serves(network string, v6 bool) bool {
	return slices.ContainsFunc(a.pools[network], func(p Pool) bool { return p.Subnet.Addr().Is6() == v6 })
}

// PoolAround returns the network's pool whose subnet holds a prefix.
func (a *Allocator) PoolAround(network string, prefix netip.Prefix) (Pool, bool) {
	p, found := a.poolOf(network, prefix.Addr())
	return p, found && p.Subnet.Bits() <= prefix.Bits()
}

// poolOf returns the network's pool whose subnet holds an address.
func (a *Allocator) poolOf(network string, addr netip.Addr) (Pool, bool) {
	for _, p := range a.pools[network] {
		if p.Subnet.Contains(addr) {
			return p, true
		}
	}
	return Pool{}, false
}
