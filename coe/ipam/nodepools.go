package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// JoinPools are first and those of the others that can serve beside them; shared
// tells whether all have one address space. A client that posts a pool is told at
// once where it overlaps another, or a reserved range. So this finds those that were
// posted before the settings had their pool or range.
func JoinPools(first, others []dhcppool.Pool, reserved Ranges, shared bool) (pools []dhcppool.Pool, problems []coe.Problem) {
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
				Message: err.Error() + "; it serves nobody until one of the two is another",
			})
			continue
		}
		pools = append(pools, p)
	}
	return pools, problems
}

// NodePools makes every node's pod-cidrs pools that serve the pods on it. One that
// overlaps a pool of others, or of a node before it in the order of addresses, is
// left out: a problem says so.
func NodePools(nodes map[netip.Addr]*coe.Node, others []dhcppool.Pool, reserved Ranges) (pools []dhcppool.Pool, problems []coe.Problem) {
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
	slices.SortFunc(cidrs, func(a, b cidr) int {
		if c := a.Compare(b.Prefix); c != 0 {
			return c
		}
		return a.addr.Compare(b.addr)
	})
	var last netip.Prefix // of those that are pools: the others in its range follow it
	for _, c := range cidrs {
		pool := dhcppool.Pool{Network: c.addr.String(), Subnet: c.Prefix}
		refuse := func(why string) {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: c.node.UID, Name: c.node.HostName, Reason: coe.PoolOverlaps,
				Message: fmt.Sprintf("its pod-cidr %s is no pool: %s; give the node, or the pool, another range", c.Prefix, why),
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

// overlaps tells which of the others a pool overlaps, or why it is none.
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
