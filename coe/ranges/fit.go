package ranges

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Takers are what pools serve: the nodes of a network, and its namespaces. With NodeBlocks (see Config of coe/ipam) each node takes its own
// blocks, also for one pod. Otherwise each namespace with pods on a node does, and every namespace may have pods on every node.
type Takers struct {
	Nodes      map[netip.Addr]*coe.Node
	Namespaces []string
	NodeBlocks bool
}

// Holders returns the number of holders of blocks that a pool may serve. A pool is whole if it is one block of one holder. The pool
// of services has no blocks.
func (t Takers) Holders(network string) (holders int, whole bool) {
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
	holders, whole := t.Holders(p.Network)
	if whole {
		return p.Size()
	}
	return int64(min(p.Fits(max(holders, 1), t.NodeBlocks), math.MaxInt64/2))
}

// SmallPools returns warnings for pools with fewer blocks than may be taken.
func SmallPools(pools []dhcppool.Pool, t Takers) (problems []coe.Problem) {
	blocks := map[Family]float64{} // of all pools of a network and family
	for _, p := range pools {
		blocks[FamilyOf(p)] += p.Blocks()
	}
	each := fmt.Sprintf("%d nodes with %d namespaces", len(t.Nodes), len(t.Namespaces))
	if t.NodeBlocks {
		each = fmt.Sprintf("%d nodes", len(t.Nodes))
	}
	told := map[Family]bool{}
	for _, p := range pools {
		f := FamilyOf(p)
		need, _ := t.Holders(p.Network)
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

// Family is a network's pools of one address family.
type Family struct {
	network string
	v6      bool
}

// FamilyOf returns the family of a pool.
func FamilyOf(p dhcppool.Pool) Family { return Family{p.Network, p.Subnet.Addr().Is6()} }

// Word returns IPv4 or IPv6.
func (f Family) Word() string {
	if f.v6 {
		return "IPv6"
	}
	return "IPv4"
}
