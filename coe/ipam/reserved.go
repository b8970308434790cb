package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// useEgress is the use of an egress address.
const useEgress = "an EgressIP"

// reserved are the addresses that no service may have as an external address.
type reserved struct {
	nodes  map[netip.Addr]string // the node of each address
	ranges ranges.List
}

// newReserved collects the addresses that the settings, the pools, the ServiceCIDRs, the nodes and the EgressIPs reserve.
func newReserved(cfg Config, pools []dhcppool.Pool, services []netip.Prefix, nodes map[netip.Addr]*coe.Node, egress []*coe.EgressIP) reserved {
	v := reserved{nodes: map[netip.Addr]string{}, ranges: cfg.Nodes.Ranges()}
	add := func(p netip.Prefix, use string, services bool) {
		v.ranges = append(v.ranges, ranges.Range{Prefix: p, Use: use, Services: services})
	}
	for _, p := range cfg.Nodes.Pods {
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
	for addr, n := range ranges.NodeAddresses(nodes) {
		if !cfg.Nodes.Ranges().ClusterAddress(addr) {
			v.nodes[addr] = n.HostName
		}
	}
	for _, at := range sortedAddrs(nodes) {
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

func (v reserved) equal(o reserved) bool {
	return maps.Equal(v.nodes, o.nodes) && slices.Equal(v.ranges, o.ranges)
}

// clusterIP returns the reason why an address cannot be a cluster address, or nil.
func (v reserved) clusterIP(addr netip.Addr) *coe.Refusal {
	return v.refuse("cluster address", addr, func(r ranges.Range) bool { return r.Use != "pods" && !r.Services })
}

// external returns the reason why an address cannot be an external address, or nil.
func (v reserved) external(addr netip.Addr) *coe.Refusal {
	return v.refuse("external address", addr, func(ranges.Range) bool { return true })
}

func (v reserved) refuse(what string, addr netip.Addr, counts func(ranges.Range) bool) *coe.Refusal {
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

// RefuseEgress returns the reason why an address cannot be an egress address, or nil. The external address that a node
// reports does not count: a node could report any.
func (a *Assigner) RefuseEgress(addr netip.Addr) *coe.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := reserved{nodes: map[netip.Addr]string{}, ranges: a.vips.reserved.ranges}
	if n := a.store.Nodes()[addr]; n != nil {
		v.nodes[addr] = n.HostName
	}
	if refused := v.refuse("egress address", addr, func(r ranges.Range) bool { return r.Use != useEgress }); refused != nil {
		return refused
	}
	if of := a.atGateway(addr); of != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s is %s; send another", addr, of)}
	}
	for _, c := range a.vips.external[addr] {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s belongs to a service of namespace %s", addr, c.Namespace)}
	}
	if c := a.vips.cluster[addr]; c != nil {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s belongs to a service of namespace %s", addr, c.Namespace)}
	}
	return nil
}

// atGateway says which gateway has an address, as its own or as its next hop; empty if none has.
func (a *Assigner) atGateway(addr netip.Addr) string {
	for _, g := range a.store.Gateways() {
		for _, f := range g.Families() {
			switch addr {
			case f.Address.Addr():
				return "the address of the gateway of node " + a.nodeName(g.Node)
			case f.NextHop:
				return "the next hop of the gateway of node " + a.nodeName(g.Node)
			}
		}
	}
	return ""
}

// nodeName returns the name of the node with an address; the address if it is unknown.
func (a *Assigner) nodeName(addr netip.Addr) string {
	if n := a.store.Nodes()[addr]; n != nil && n.HostName != "" {
		return n.HostName
	}
	return addr.String()
}

// reserveAgain updates the reserved addresses from the settings, pools and nodes. It returns the
// namespaces with services whose addresses may now be refused or allowed.
func (a *Assigner) reserveAgain() (changed []string) {
	now := newReserved(a.cfg, a.pools, a.serviceCIDRs.ranges, a.store.Nodes(), a.store.EgressIPs())
	if now.equal(a.vips.reserved) {
		return nil
	}
	a.vips.reserved = now
	for addr, claims := range a.vips.external {
		if addr.IsUnspecified() || now.external(addr) == nil { // node ports stay
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
