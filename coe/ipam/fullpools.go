package ipam

import (
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// The pools of a network and family are nearly full if more than fullAbove of their addresses are in blocks and, with
// NodeBlocks, more than that part of the pods that fit have addresses. They stay so until one of the two is not more than
// fullUntil: single blocks come and go.
const (
	fullAbove = 0.9
	fullUntil = 0.85
)

// followPools finds the pools that are nearly full.
func (r *round) followPools() {
	type use struct {
		taken, all float64
		pools      []dhcppool.Pool
	}
	uses := map[ranges.Family]*use{}
	for _, p := range r.pools {
		if p.Network == coe.ServicePool {
			continue
		}
		u := uses[ranges.FamilyOf(p)]
		if u == nil {
			u = &use{}
			uses[ranges.FamilyOf(p)] = u
		}
		taken, all := r.alloc.Taken(p)
		u.taken, u.all, u.pools = u.taken+taken, u.all+all, append(u.pools, p)
	}
	was := map[string]bool{}
	for _, p := range r.nearlyFull {
		was[p.UID] = true
	}
	var problems []coe.Problem
	for _, p := range r.pools {
		f, uid, limit := ranges.FamilyOf(p), p.Network+" "+p.Subnet.String(), fullAbove
		if was[uid] {
			limit = fullUntil
		}
		u := uses[f]
		if delete(uses, f); u == nil || u.taken <= u.all*limit || r.cfg.NodeBlocks && !r.fuller(u.pools, limit) {
			continue
		}
		problems = append(problems, coe.Problem{
			Kind: "pool", UID: uid, Name: p.Network, Reason: coe.PoolNearlyFull, Message: fmt.Sprintf(
				"few of the %s addresses of network-id %q are left for further blocks: pods get no address when the blocks are used up; "+
					"add a pool, or widen it", f.Word(), p.Network),
		})
	}
	if !slices.Equal(problems, r.nearlyFull) {
		r.nearlyFull = problems
		r.tellAddressProblems()
	}
}

// fuller reports whether more than a part of the pods that fit in pools have addresses, with NodeBlocks. Nodes have few blocks,
// and the last one of each can be almost as large as the others together, so free addresses of blocks count. But they do not
// serve the next node: it counts as one more holder.
func (r *round) fuller(pools []dhcppool.Pool, part float64) bool {
	t := ranges.Takers{Nodes: r.store.Nodes(), NodeBlocks: true}
	var held int
	var fit float64
	for _, p := range pools {
		addresses, have := r.alloc.Held(p)
		held += addresses
		if may, whole := t.Holders(p.Network); whole {
			fit += float64(p.Size())
		} else {
			fit += p.Fits(max(may, have)+1, true)
		}
	}
	return float64(held) > fit*part
}

// tellAddressProblems puts the problems of nodes and pools into the store.
func (r *round) tellAddressProblems() {
	r.clusterChanged = true
	problems := slices.Concat(r.misplaced, r.sharedChassis, r.nearlyFull)
	r.store.Update(func(tx *coe.Tx) { tx.SetAddressProblems(problems) })
}
