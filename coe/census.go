package coe

import "net/netip"

// Census counts the reported entities and the chosen values.
type Census struct {
	// Pods is the number of pods that need a network. Leased is the number of their
	// interfaces with a lease.
	Pods, Leased int
	// Given and Resting count addresses of pools: addresses in use, and addresses that wait
	// before they are given again.
	Given, Resting map[PoolKey]int
	// Services has the addresses that were chosen for services.
	Services []netip.Addr
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
	c := Census{Given: map[PoolKey]int{}, Resting: map[PoolKey]int{}}
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
			c.Services = append(c.Services, f.Address)
		}
	}
}
