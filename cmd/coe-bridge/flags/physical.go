package flags

import (
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
)

// SetPhysical adds physical networks to the settings of nodes. It returns an error if a subnet of one has another use: a pool of
// another namespace, or a range of nodes or services.
func SetPhysical(nodes *ranges.NodesConfig, all physical.Networks, pools []dhcppool.Pool) error {
	for _, p := range all {
		for _, subnet := range p.Subnets {
			for _, r := range nodes.Ranges() {
				if r.Overlaps(subnet) {
					return fmt.Errorf("--physical-network: subnet %s of namespace %s overlaps %s: choose another range", subnet, p.Namespace, r)
				}
			}
		}
	}
	nodes.Physical = all
	taken := slices.DeleteFunc(nodes.Ranges(), func(r ranges.Range) bool { return r.Namespace == "" })
	for _, pool := range pools {
		if err := taken.Refuse(pool); err != nil {
			return fmt.Errorf("--pool: %w, whose pods are elsewhere: choose another pool, or another subnet", err)
		}
	}
	return nil
}

// AttachPhysical returns an error if pods of the named backends would not reach the machines of physical networks.
func (f *Backends) AttachPhysical(names []string, i mapping.Isolation, all physical.Networks) error {
	switch {
	case len(all) == 0:
	case slices.Contains(names, "odl"):
		return fmt.Errorf("--physical-network needs --backend ovn: with OpenDaylight pods would not reach the machines of %s", &all[0])
	case i == mapping.IsolationACLs:
		return fmt.Errorf("--physical-network: with --isolation namespace it needs --ovn-layout elan: the ACLs of layout node would keep pods from the machines of %s", &all[0])
	}
	return nil
}
