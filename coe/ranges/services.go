package ranges

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// ServiceRanges returns the ranges of ServiceCIDRs. A range that overlaps a reserved one or a pool, and that is not of
// cluster addresses, is left out and is a problem: nodes would lead pods' packets elsewhere.
func ServiceRanges(all []*coe.ServiceCIDR, pools []dhcppool.Pool, reserved List) (ranges []netip.Prefix, problems []coe.Problem) {
	for _, c := range all {
		for _, p := range c.CIDRs {
			if why := taken(p, pools, reserved); why != "" {
				problems = append(problems, coe.Problem{
					Kind: "servicecidr", UID: c.UID, Name: c.Name, Reason: coe.PoolOverlaps,
					Message: fmt.Sprintf("nodes do not reach its range %s: it overlaps %s; use another range", p, why),
				})
				continue
			}
			ranges = append(ranges, p)
		}
	}
	return ranges, problems
}

// taken returns what other use a range of services has; empty if it has none.
func taken(p netip.Prefix, pools []dhcppool.Pool, reserved List) string {
	if i := slices.IndexFunc(reserved, func(r Range) bool { return !r.Services && r.Overlaps(p) }); i >= 0 {
		return reserved[i].String()
	}
	if i := slices.IndexFunc(pools, func(one dhcppool.Pool) bool { return one.Network != coe.ServicePool && one.Subnet.Overlaps(p) }); i >= 0 {
		return fmt.Sprintf("%s of pool %q", pools[i].Subnet, pools[i].Network)
	}
	return ""
}
