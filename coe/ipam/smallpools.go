package ipam

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// SmallPools returns warnings for pools with too few blocks. Each namespace with pods on a node
// takes its own block there, even for one pod, and every namespace may have pods on every node.
func SmallPools(pools []dhcppool.Pool, nodes map[netip.Addr]*coe.Node, namespaces []string) (problems []coe.Problem) {
	blocks := map[family]float64{} // of all pools of a network and family
	for _, p := range pools {
		blocks[familyOf(p)] += p.Blocks()
	}
	served := map[string]int{coe.ServicePool: 0, dhcppool.DefaultNetwork: len(nodes) * len(namespaces)}
	for _, ns := range namespaces {
		if ns != dhcppool.DefaultNetwork && ns != coe.ServicePool {
			served[ns] = len(nodes)
		}
	}
	for addr := range nodes {
		served[addr.String()] = len(namespaces)
	}
	told := map[family]bool{}
	for _, p := range pools {
		f := familyOf(p)
		need, has := served[p.Network], blocks[f]
		if float64(need) <= has || told[f] {
			continue
		}
		told[f] = true
		problems = append(problems, coe.Problem{
			Kind: "pool", UID: p.Network + " " + p.Subnet.String(), Name: p.Network, Reason: coe.PoolSmall, Message: fmt.Sprintf(
				"the pools of network-id %q hold %.0f blocks of /%d; %d nodes with %d namespaces may need %d: pods get no address when the blocks are used up; give a larger pool",
				p.Network, math.Floor(has), p.BlockBits(), len(nodes), len(namespaces), need),
		})
	}
	return problems
}

// family is a network's pools of one address family.
type family struct {
	network string
	v6      bool
}

func familyOf(p dhcppool.Pool) family { return family{p.Network, p.Subnet.Addr().Is6()} }
