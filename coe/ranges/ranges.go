// Package ranges says which addresses have a fixed use: by the settings of nodes, and by pools, pod-cidrs of nodes and ServiceCIDRs that
// overlap nothing else. It also says how many pods fit a pool. It keeps nothing.
package ranges

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Range is a range of addresses with a fixed use.
type Range struct {
	netip.Prefix
	Use string // "the node network", "cluster addresses"
	// Services is set for ranges of cluster addresses.
	Services bool
	// Namespace has the range for its own pods; empty if no pods may have addresses of it.
	Namespace string
}

func (r Range) String() string { return fmt.Sprintf("%s, the range of %s", r.Prefix, r.Use) }

// List are ranges of addresses with a fixed use.
type List []Range

// Find returns the range that contains an address, or nil.
func (r List) Find(addr netip.Addr) *Range {
	for n := range r {
		if r[n].Contains(addr) {
			return &r[n]
		}
	}
	return nil
}

// ClusterAddress reports whether an address is in a range of cluster addresses.
func (r List) ClusterAddress(addr netip.Addr) bool {
	in := r.Find(addr)
	return in != nil && in.Services
}

// Refuse returns an error if a pool overlaps a range with another use.
func (r List) Refuse(p dhcppool.Pool) error {
	for _, one := range r {
		if one.Overlaps(p.Subnet) && (!one.Services || p.Network != coe.ServicePool) && !one.has(p) {
			return fmt.Errorf("pool %q, subnet %s: overlaps %s", p.Network, p.Subnet, one)
		}
	}
	return nil
}

// has reports whether a pool serves the pods of the range's namespace alone.
func (r Range) has(p dhcppool.Pool) bool {
	switch p.Network {
	case dhcppool.DefaultNetwork, coe.ServicePool:
		return false
	case r.Namespace:
		return true
	}
	_, namespace, err := netvirt.ParseELANName(p.Network)
	return err == nil && r.Namespace != "" && namespace == r.Namespace
}
