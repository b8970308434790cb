package ranges

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// useEgress is the use of an egress address.
const useEgress = "an EgressIP"

// Reserved are the addresses that no service may have as an external address.
type Reserved struct {
	nodes  map[netip.Addr]string // the node of each address
	ranges List
}

// Reserve collects the addresses that the settings, the pools, the ServiceCIDRs, the nodes and the EgressIPs reserve.
func Reserve(settings NodesConfig, pools []dhcppool.Pool, services []netip.Prefix, nodes map[netip.Addr]*coe.Node, egress []*coe.EgressIP) Reserved {
	v := Reserved{nodes: map[netip.Addr]string{}, ranges: settings.Ranges()}
	add := func(p netip.Prefix, use string, services bool) {
		v.ranges = append(v.ranges, Range{Prefix: p, Use: use, Services: services})
	}
	for _, p := range settings.Pods {
		add(p, "pods", false)
	}
	for _, p := range services {
		add(p, "cluster addresses (ServiceCIDR)", true)
	}
	for _, p := range pools {
		if p.Network == coe.ServicePool {
			add(p.Subnet, "cluster addresses", true)
		} else {
			add(p.Subnet, "pods", false)
		}
	}
	for addr, n := range NodeAddresses(nodes) {
		if !settings.Ranges().ClusterAddress(addr) {
			v.nodes[addr] = n.HostName
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(nodes), netip.Addr.Compare) {
		for _, p := range nodes[at].PodCIDRs {
			add(p, "pods", false)
		}
	}
	for _, e := range egress {
		if e.Address.IsValid() {
			add(netip.PrefixFrom(e.Address, 32), useEgress, false)
		}
	}
	return v
}

// Equal reports whether both are the same.
func (v Reserved) Equal(o Reserved) bool {
	return maps.Equal(v.nodes, o.nodes) && slices.Equal(v.ranges, o.ranges)
}

// ClusterIP returns the reason why an address cannot be a cluster address, or nil.
func (v Reserved) ClusterIP(addr netip.Addr) *coe.Refusal {
	return v.refuse("cluster address", addr, func(r Range) bool { return r.Use != "pods" && !r.Services })
}

// External returns the reason why an address cannot be an external address, or nil.
func (v Reserved) External(addr netip.Addr) *coe.Refusal {
	return v.refuse("external address", addr, func(Range) bool { return true })
}

// Egress returns the reason why an address cannot be an egress address, or nil. node is the node that has the address as its own; nil if
// none has. The external address that a node reports does not count: a node could report any.
func (v Reserved) Egress(addr netip.Addr, node *coe.Node) *coe.Refusal {
	v.nodes = map[netip.Addr]string{}
	if node != nil {
		v.nodes[addr] = node.HostName
	}
	return v.refuse("egress address", addr, func(r Range) bool { return r.Use != useEgress })
}

func (v Reserved) refuse(what string, addr netip.Addr, counts func(Range) bool) *coe.Refusal {
	if !coe.Routable(addr) {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
			"%s %s is a loopback, link-local, multicast or unspecified address; send another", what, addr)}
	}
	if node, found := v.nodes[addr]; found {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s is the address of node %s; send another", what, addr, node)}
	}
	for _, r := range v.ranges {
		if r.Contains(addr) && counts(r) {
			return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s is in %s; send another", what, addr, r)}
		}
	}
	return nil
}
