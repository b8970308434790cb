package ranges

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// JoinPools returns first, and each of the others that overlaps neither an earlier pool nor a
// reserved range. A pool that overlaps is left out and is a problem. Such a pool was posted before
// the settings changed, because a POST of a pool that overlaps is refused. shared says that all
// pools have one address space.
func JoinPools(first, others []dhcppool.Pool, reserved List, shared bool) (pools []dhcppool.Pool, problems []coe.Problem) {
	pools = slices.Concat(first, others)
	if !slices.ContainsFunc(others, func(p dhcppool.Pool) bool { return reserved.Refuse(p) != nil }) && dhcppool.Validate(pools, shared) == nil {
		return pools, nil
	}
	pools = slices.Clone(first)
	for _, p := range others {
		err := reserved.Refuse(p)
		if err == nil {
			err = dhcppool.Validate(append(slices.Clip(pools), p), shared)
		}
		if err != nil {
			problems = append(problems, coe.Problem{
				Kind: "pool", UID: p.Network + " " + p.Subnet.String(), Name: p.Network, Reason: coe.PoolOverlaps,
				Message: err.Error() + "; it serves no pod until one of the two is changed",
			})
			continue
		}
		pools = append(pools, p)
	}
	return pools, problems
}

// NodePools returns a pool for each pod-cidr of a node, which serves the pods on the node.
// A pod-cidr that overlaps a reserved range, a pool of others, or a pod-cidr of a node with a
// lower address is left out and is a problem.
func NodePools(nodes map[netip.Addr]*coe.Node, others []dhcppool.Pool, reserved List) (pools []dhcppool.Pool, problems []coe.Problem) {
	type cidr struct {
		netip.Prefix
		node *coe.Node
		addr netip.Addr
	}
	var cidrs []cidr
	for addr, n := range nodes {
		for _, c := range n.PodCIDRs {
			cidrs = append(cidrs, cidr{c.Masked(), n, addr})
		}
	}
	slices.SortFunc(cidrs, func(a, b cidr) int { return cmp.Or(a.Compare(b.Prefix), a.addr.Compare(b.addr)) })
	var last netip.Prefix // the last prefix that became a pool; prefixes inside it follow it
	for _, c := range cidrs {
		pool := dhcppool.Pool{Network: c.addr.String(), Subnet: c.Prefix}
		refuse := func(why string) {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: c.node.UID, Name: c.node.HostName, Reason: coe.PoolOverlaps,
				Message: fmt.Sprintf("its pod-cidr %s is not used as a pool: %s; give the node, or the pool, another range", c.Prefix, why),
			})
		}
		if last.IsValid() && last.Overlaps(c.Prefix) {
			refuse(fmt.Sprintf("it overlaps %s of another node", last))
			continue
		}
		if err := cmp.Or(reserved.Refuse(pool), overlaps(pool, others)); err != nil {
			refuse(err.Error())
			continue
		}
		pools, last = append(pools, pool), c.Prefix
	}
	return pools, problems
}

// overlaps returns an error if the pool is invalid or overlaps one of the others.
func overlaps(pool dhcppool.Pool, others []dhcppool.Pool) error {
	if err := dhcppool.Validate([]dhcppool.Pool{pool}, true); err != nil {
		return err
	}
	for _, o := range others {
		if o.Subnet.Overlaps(pool.Subnet) {
			return fmt.Errorf("it overlaps pool %s of network %q", o.Subnet, o.Network)
		}
	}
	return nil
}
