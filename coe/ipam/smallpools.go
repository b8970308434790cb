package ipam

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Takers are what pools serve: the nodes of a network, and its namespaces. With NodeBlocks (Config) each node takes its own
// blocks, also for one pod. Otherwise each namespace with pods on a node does, and every namespace may have pods on every node.
type Takers struct {
	Nodes      map[netip.Addr]*coe.Node
	Namespaces []string
	NodeBlocks bool
}

// of returns the number of holders of blocks that a pool may serve. A pool is whole if it is one block of one holder. The pool
// of services has no blocks.
func (t Takers) of(network string) (holders int, whole bool) {
	onNode := len(t.Namespaces)
	if t.NodeBlocks {
		onNode = 1
	}
	switch network {
	case coe.ServicePool:
		return 0, false
	case dhcppool.DefaultNetwork:
		return len(t.Nodes) * onNode, false
	}
	if node, err := netip.ParseAddr(network); err == nil {
		if t.Nodes[node] == nil {
			return 0, false
		}
		return onNode, t.NodeBlocks
	}
	if _, _, err := netvirt.ParseELANName(network); err == nil {
		return 1, true
	}
	return len(t.Nodes), false // of a namespace
}

// Fit returns the number of pods that a pool serves: how many get an address before the first one is refused, if all nodes and
// namespaces that may take blocks get pods in turn. If there are none yet, it counts one. It is an estimate.
func (t Takers) Fit(p dhcppool.Pool) int64 {
	holders, whole := t.of(p.Network)
	if whole {
		return p.Size()
	}
	return int64(min(p.Fits(max(holders, 1)), math.MaxInt64/2))
}

// SmallPools returns warnings for pools with fewer blocks than may be taken.
func SmallPools(pools []dhcppool.Pool, t Takers) (problems []coe.Problem) {
	blocks := map[family]float64{} // of all pools of a network and family
	for _, p := range pools {
		blocks[familyOf(p)] += p.Blocks()
	}
	each := fmt.Sprintf("%d nodes with %d namespaces", len(t.Nodes), len(t.Namespaces))
	if t.NodeBlocks {
		each = fmt.Sprintf("%d nodes", len(t.Nodes))
	}
	told := map[family]bool{}
	for _, p := range pools {
		f := familyOf(p)
		need, _ := t.of(p.Network)
		if has := blocks[f]; float64(need) <= has || told[f] {
			continue
		}
		told[f] = true
		problems = append(problems, coe.Problem{
			Kind: "pool", UID: p.Network + " " + p.Subnet.String(), Name: p.Network, Reason: coe.PoolSmall, Message: fmt.Sprintf(
				"the pools of network-id %q hold %.0f blocks of /%d; %s may need %d: pods get no address when the blocks are used up; give a larger pool",
				p.Network, math.Floor(blocks[f]), p.BlockBits(), each, need),
		})
	}
	return problems
}

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
	uses := map[family]*use{}
	for _, p := range r.pools {
		if p.Network == coe.ServicePool {
			continue
		}
		u := uses[familyOf(p)]
		if u == nil {
			u = &use{}
			uses[familyOf(p)] = u
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
		f, uid, limit := familyOf(p), p.Network+" "+p.Subnet.String(), fullAbove
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
					"add a pool, or widen it", f.word(), p.Network),
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
	t := Takers{Nodes: r.store.Nodes(), NodeBlocks: true}
	var held int
	var fit float64
	for _, p := range pools {
		addresses, have := r.alloc.Held(p)
		held += addresses
		if may, whole := t.of(p.Network); whole {
			fit += float64(p.Size())
		} else {
			fit += p.Fits(max(may, have) + 1)
		}
	}
	return float64(held) > fit*part
}

// tellAddressProblems puts the problems of nodes and pools into the store.
func (r *round) tellAddressProblems() {
	r.clusterChanged = true
	problems := slices.Concat(r.misplaced, r.nearlyFull)
	r.store.Update(func(tx *coe.Tx) { tx.SetAddressProblems(problems) })
}

// family is a network's pools of one address family.
type family struct {
	network string
	v6      bool
}

func familyOf(p dhcppool.Pool) family { return family{p.Network, p.Subnet.Addr().Is6()} }

func (f family) word() string {
	if f.v6 {
		return "IPv6"
	}
	return "IPv4"
}
