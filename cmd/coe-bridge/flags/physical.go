package flags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// CheckPhysical returns an error if a subnet of a physical network has another use: a pool of another namespace, or a range of
// nodes or services. The pools with the names of dhcppool.DefaultNetwork and coe.ServicePool serve others too.
func CheckPhysical(all coe.PhysicalNetworks, pools []dhcppool.Pool, nodes ipam.NodesConfig) error {
	ranges := nodes.Ranges()
	for _, p := range all {
		for _, subnet := range p.Subnets {
			for _, pool := range pools {
				own := pool.Network == p.Namespace && pool.Network != dhcppool.DefaultNetwork && pool.Network != coe.ServicePool
				if pool.Subnet.Overlaps(subnet) && !own && !strings.HasSuffix(pool.Network, ":"+p.Namespace) {
					return fmt.Errorf("--physical-network: subnet %s of namespace %s overlaps --pool %s of network-id %q, whose pods are elsewhere: choose another pool, or another subnet",
						subnet, p.Namespace, pool.Subnet, pool.Network)
				}
			}
			for _, r := range ranges {
				if r.Overlaps(subnet) {
					return fmt.Errorf("--physical-network: subnet %s of namespace %s overlaps %s: choose another range", subnet, p.Namespace, r)
				}
			}
		}
	}
	return nil
}

// AttachPhysical returns an error if one of the named backends attaches no physical network, and there are some.
func (f *Backends) AttachPhysical(names []string, all coe.PhysicalNetworks) error {
	if len(all) == 0 {
		return nil
	}
	if slices.Contains(names, "odl") || ovn.Layout(f.ovnLayout) == ovn.LayoutNode {
		return fmt.Errorf("--physical-network needs --backend ovn with --ovn-layout elan: with OpenDaylight, and with one switch for each node, pods would not reach the machines of %s", &all[0])
	}
	return nil
}
