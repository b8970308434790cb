package ranges

import (
	"fmt"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// The pools of a network and family are nearly full if more than fullAbove of their addresses are in blocks and, with
// NodeBlocks, more than that part of the pods that fit have addresses. They stay so until one of the two is not more than
// fullUntil: single blocks come and go.
const (
	fullAbove = 0.9
	fullUntil = 0.85
)

// NearlyFull returns the problems of pods' pools that are nearly full. The problems of the last time are in was.
func NearlyFull(pools []dhcppool.Pool, alloc *dhcppool.Allocator, t Takers, was []coe.Problem) (problems []coe.Problem) {
	type use struct {
		taken, all float64
		pools      []dhcppool.Pool
	}
	uses := map[Family]*use{}
	for _, p := range pools {
		if p.Network == coe.ServicePool {
			continue
		}
		u := uses[FamilyOf(p)]
		if u == nil {
			u = &use{}
			uses[FamilyOf(p)] = u
		}
		taken, all := alloc.Taken(p)
		u.taken, u.all, u.pools = u.taken+taken, u.all+all, append(u.pools, p)
	}
	wasFull := map[string]bool{}
	for _, p := range was {
		wasFull[p.UID] = true
	}
	for _, p := range pools {
		f, uid, limit := FamilyOf(p), p.Network+" "+p.Subnet.String(), fullAbove
		if wasFull[uid] {
			limit = fullUntil
		}
		u := uses[f]
		if delete(uses, f); u == nil || u.taken <= u.all*limit || t.NodeBlocks && !t.fill(u.pools, alloc, limit) {
			continue
		}
		problems = append(problems, coe.Problem{
			Kind: "pool", UID: uid, Name: p.Network, Reason: coe.PoolNearlyFull, Message: fmt.Sprintf(
				"few of the %s addresses of network-id %q are left for further blocks: pods get no address when the blocks are used up; "+
					"add a pool, or widen it", f.Word(), p.Network),
		})
	}
	return problems
}

// fill reports whether more than a part of the pods that fit in pools have addresses, with NodeBlocks. Nodes have few blocks,
// and the last one of each can be almost as large as the others together, so free addresses of blocks count. But they do not
// serve the next node: it counts as one more holder.
func (t Takers) fill(pools []dhcppool.Pool, alloc *dhcppool.Allocator, part float64) bool {
	var held int
	var fit float64
	for _, p := range pools {
		addresses, have := alloc.Held(p)
		held += addresses
		if may, whole := t.Holders(p.Network); whole {
			fit += float64(p.Size())
		} else {
			fit += p.Fits(max(may, have)+1, true)
		}
	}
	return float64(held) > fit*part
}
