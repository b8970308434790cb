package state

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Census counts the reported entities and the chosen values.
type Census struct {
	// Pods is the number of pods that need a network. Leased is the number of their
	// interfaces with a lease.
	Pods, Leased int
	// Given and Resting count addresses of pools: addresses in use, and addresses that wait
	// before they are given again.
	Given, Resting map[PoolKey]int
	// Blocks has the blocks of pools, each once.
	Blocks map[PoolKey]map[netip.Prefix]struct{}
	// Services has the cluster addresses of services, requested and chosen ones.
	Services map[netip.Addr]struct{}
}

// PoolKey identifies a pool.
type PoolKey struct {
	Network string
	Subnet  netip.Prefix
}

// Census counts. Its cost grows with the number of pods and leases; it builds no View.
func (s *Store) Census() Census {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := Census{Given: map[PoolKey]int{}, Resting: map[PoolKey]int{}, Blocks: map[PoolKey]map[netip.Prefix]struct{}{}, Services: map[netip.Addr]struct{}{}}
	for _, ns := range s.namespaces {
		c.add(ns)
	}
	return c
}

func (c *Census) add(ns *namespace) {
	for _, p := range ns.pods {
		if !p.NoNetwork {
			c.Pods++
		}
	}
	pools := make(map[netip.Prefix]PoolKey, len(ns.blocks))
	for _, b := range ns.blocks {
		if b.Network != "" {
			pools[b.Prefix] = PoolKey{b.Network, b.Subnet}
			c.addBlock(b)
		}
	}
	for _, l := range ns.leases {
		count := c.Resting
		if l.Released == 0 {
			c.Leased++
			count = c.Given
		}
		for _, a := range l.Addresses {
			if pool, pooled := pools[a.Network]; pooled {
				count[pool]++
			}
		}
	}
	for _, f := range ns.serviceFacts {
		if f.Released == 0 {
			c.Services[f.Address] = struct{}{}
		}
	}
	for _, s := range ns.services {
		for _, a := range s.ClusterIPs {
			c.Services[a] = struct{}{}
		}
	}
}

func (c *Census) addBlock(b *coe.Block) {
	pool, prefix := PoolKey{b.Network, b.Subnet}, b.Prefix
	if b.Shared.IsValid() {
		prefix = b.Shared
	}
	if c.Blocks[pool] == nil {
		c.Blocks[pool] = map[netip.Prefix]struct{}{}
	}
	c.Blocks[pool][prefix] = struct{}{}
}
