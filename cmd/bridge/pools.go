package bridge

import (
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/status"
)

// takers returns what the pools serve, for a backend with settings of the mapping.
func (b *Bridge) takers(s mapping.Settings) ranges.Takers {
	return ranges.Takers{Nodes: b.store.Nodes(), Namespaces: b.store.Namespaces(), NodeBlocks: s.Limits.NodeGateways}
}

// poolsTree has all pools, and what is used of them.
func (b *Bridge) poolsTree() ([]byte, error) {
	all := status.AllPools{Pools: b.poolUse(b.store.Census())}
	if len(all.Pools) == 0 {
		return nil, nil
	}
	return marshal("coe-status:pools", all)
}

// poolUse returns the use of all pools.
func (b *Bridge) poolUse(census state.Census) (all []status.PoolUse) {
	takers := b.takers(b.settingsOf(b.role.Load()))
	for _, p := range b.allPools().pools {
		key := state.PoolKey{Network: p.Network, Subnet: p.Subnet}
		use := status.PoolUse{
			Network: p.Network, Subnet: p.Subnet, From: p.From, To: p.To, Gateway: p.Gateway,
			Given: census.Given[key], Resting: census.Resting[key], Blocks: len(census.Blocks[key]),
		}
		if p.Network == coe.ServicePool {
			for a := range census.Services {
				if p.Subnet.Contains(a) {
					use.Given++
				}
			}
		} else {
			use.Fit = new(takers.Fit(p))
		}
		all = append(all, use)
	}
	return all
}
