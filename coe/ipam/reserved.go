package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// reserved are the addresses that no service may have as an external address.
type reserved struct {
	nodes  map[netip.Addr]string // what the address is of
	ranges []reservedRange
}

type reservedRange struct {
	netip.Prefix
	use string
	// services is set for ranges of cluster addresses.
	services bool
}

// newReserved collects what the settings, the pools and the nodes reserve.
func newReserved(cfg Config, pools []dhcppool.Pool, nodes map[netip.Addr]*coe.Node) reserved {
	v := reserved{nodes: map[netip.Addr]string{}}
	add := func(p netip.Prefix, use string, services bool) {
		if p.IsValid() {
			v.ranges = append(v.ranges, reservedRange{p, use, services})
		}
	}
	add(cfg.NodeNetwork.Prefix, "the node network", false)
	for _, p := range cfg.Reserved {
		add(p, "the network's own links", false)
	}
	for _, p := range cfg.PodNetworks {
		add(p, "pods", false)
	}
	for _, p := range cfg.ServiceNetworks {
		add(p, "cluster addresses", true)
	}
	for _, p := range pools {
		if p.Network == coe.ServicePool {
			add(p.Subnet, "cluster addresses", true)
		} else {
			add(p.Subnet, "pods", false)
		}
	}
	for _, at := range sortedAddrs(nodes) {
		n := nodes[at]
		for _, a := range []netip.Addr{n.InternalIP, n.ExternalIP} {
			if a.IsValid() {
				v.nodes[a] = n.HostName
			}
		}
		for _, p := range n.PodCIDRs {
			add(p, "pods", false)
		}
	}
	return v
}

func (v reserved) equal(o reserved) bool {
	return maps.Equal(v.nodes, o.nodes) && slices.Equal(v.ranges, o.ranges)
}

// clusterIP says why an address cannot be a cluster address; nil where it can.
func (v reserved) clusterIP(addr netip.Addr) *coe.Refusal {
	return v.refuse("cluster address", addr, func(r reservedRange) bool { return r.use != "pods" && !r.services })
}

// external says why an address cannot be an external address; nil where it can.
func (v reserved) external(addr netip.Addr) *coe.Refusal {
	return v.refuse("external address", addr, func(reservedRange) bool { return true })
}

func (v reserved) refuse(what string, addr netip.Addr, counts func(reservedRange) bool) *coe.Refusal {
	if !coe.Routable(addr) {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
			"%s %s is a loopback, link-local, multicast or unspecified address; send another", what, addr)}
	}
	if node, found := v.nodes[addr]; found {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s is the address of node %s; send another", what, addr, node)}
	}
	for _, r := range v.ranges {
		if r.Contains(addr) && counts(r) {
			return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf(
				"%s %s is in %s, the range of %s; send another", what, addr, r.Prefix, r.use)}
		}
	}
	return nil
}

// reserveAgain follows the settings, pools and nodes. It returns the namespaces in
// which that may refuse, or allow, a service's address.
func (a *Assigner) reserveAgain() (changed []string) {
	now := newReserved(a.cfg, a.pools, a.store.Nodes())
	if now.equal(a.vips.reserved) {
		return nil
	}
	a.vips.reserved = now
	for addr, claims := range a.vips.external {
		if now.external(addr) == nil {
			continue
		}
		for _, c := range claims {
			changed = append(changed, c.Namespace)
		}
	}
	for ns, refused := range a.waiting {
		for _, r := range refused.services {
			if r.Reason == coe.AddressTaken {
				changed = append(changed, ns)
				break
			}
		}
	}
	return changed
}
