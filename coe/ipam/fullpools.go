package ipam

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// followPools finds the pools that are nearly full.
func (r *round) followPools() {
	t := ranges.Takers{Nodes: r.store.Nodes(), NodeBlocks: r.cfg.NodeBlocks}
	if problems := ranges.NearlyFull(r.pools, r.alloc, t, r.nearlyFull); !slices.Equal(problems, r.nearlyFull) {
		r.nearlyFull = problems
		r.tellAddressProblems()
	}
}

// tellAddressProblems puts the problems of nodes and pools into the store.
func (r *round) tellAddressProblems() {
	r.clusterChanged = true
	problems := slices.Concat(r.misplaced, r.sharedChassis, r.nearlyFull)
	r.store.Update(func(tx *state.Tx) { tx.SetAddressProblems(problems) })
}
