package dhcppool

import (
	"maps"
	"net/netip"
	"slices"
)

// SetPools replaces the pools, which must be valid. Existing blocks and addresses stay; new
// ones follow the new pools. It returns the networks whose pools have changed, sorted. Its
// cost depends only on those networks and their blocks.
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

// setNetwork applies the given pools to a network's blocks and addresses.
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

// follow updates a block's addresses from its pool.
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

// addressesOf returns the addresses that a pool hands out in a prefix; nil if there are none.
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

// Pool returns a pool with absent bounds filled in; false if there is none.
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

// Serves reports whether a network has a pool of IPv4 or, if v6 is set, of IPv6.
func (a *Allocator) Serves(network string, v6 bool) bool {
	return slices.ContainsFunc(a.pools[network], func(p Pool) bool { return p.Subnet.Addr().Is6() == v6 })
}

// PoolAround returns the network's pool whose subnet contains a prefix.
func (a *Allocator) PoolAround(network string, prefix netip.Prefix) (Pool, bool) {
	p, found := a.poolOf(network, prefix.Addr())
	return p, found && p.Subnet.Bits() <= prefix.Bits()
}

// poolOf returns the network's pool whose subnet contains an address.
func (a *Allocator) poolOf(network string, addr netip.Addr) (Pool, bool) {
	for _, p := range a.pools[network] {
		if p.Subnet.Contains(addr) {
			return p, true
		}
	}
	return Pool{}, false
}
