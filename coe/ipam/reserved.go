package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

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

// Ranges are ranges of addresses with a fixed use.
type Ranges []Range

// NodesConfig says how nodes are joined with the network.
type NodesConfig struct {
	// Network has the IPv4 addresses of nodes' management ports; its zero value leaves nodes
	// without one. NetworkIPv6 has their IPv6 addresses, at least as many; its zero value leaves them without.
	Network, NetworkIPv6 coe.NodeNetwork
	// Ports is set if nodes have a port in each of their elan-instances instead.
	Ports bool
	// Balance is set if nodes lead pods to services, because the backend does not; see coe.Networks.
	Balance bool
	// Pods and Services are ranges outside the pools from which pods and services may
	// request addresses, and that nodes reach. The address in a pod's status must be of a
	// pool or of Pods.
	Pods, Services []netip.Prefix
	// External are the ranges that allow external addresses of Kubernetes services.
	External []netip.Prefix
	// NodePorts are the ports on which nodes with a management port answer for services; see
	// ServedPorts.
	NodePorts coe.PortRange
	// HostPorts are the ports of nodes that pods may request; see ServedHostPorts. None is in NodePorts.
	HostPorts []coe.PortRange
	// NoMasquerade are the destinations outside the cluster to which pods keep their address. The
	// outside routes the addresses of pods to their nodes.
	NoMasquerade []netip.Prefix
	// Reserved are ranges that the network uses for its own links.
	Reserved []netip.Prefix
	// Physical are the physical networks of namespaces.
	Physical coe.PhysicalNetworks
}

// joined reports whether nodes are joined with the network.
func (c NodesConfig) joined() bool { return c.Network.IsValid() || c.Ports }

// ManagementPorts reports whether nodes have management ports.
func (c NodesConfig) ManagementPorts() bool { return c.Network.IsValid() }

// HasIPv6 reports whether nodes have IPv6 addresses in the network of the pods.
func (c NodesConfig) HasIPv6() bool { return c.NetworkIPv6.IsValid() || c.Ports }

// ServedPorts returns the ports on which nodes answer for services: none without a management port.
func (c NodesConfig) ServedPorts() coe.PortRange {
	if !c.ManagementPorts() {
		return coe.PortRange{}
	}
	return c.NodePorts
}

// ServedHostPorts returns the ports on which nodes answer for pods: none without a management port.
func (c NodesConfig) ServedHostPorts() []coe.PortRange {
	if !c.ManagementPorts() {
		return nil
	}
	return c.HostPorts
}

// For adapts the settings to a backend of these kinds. Nodes have management ports or, if
// namespaces are isolated, ports in elan-instances. They are not joined if the backend has no
// such kind.
func (c NodesConfig) For(kinds netvirt.KindSet, isolated bool) NodesConfig {
	joins, balances := kinds.Has(netvirt.KindManagementPort), kinds.Has(netvirt.KindServiceVIP)
	if joins && balances {
		c.Reserved = coe.LinkRanges()
	}
	if c.Ports = isolated && kinds.Has(netvirt.KindNodePort); c.Ports {
		c.Reserved = append(c.Reserved, coe.NodesIsolatedIPv6)
	}
	if c.Balance = joins && !isolated && !balances; c.Balance {
		c.NetworkIPv6 = coe.NodeNetwork{} // nodes lead to services of IPv4 only
	}
	if isolated || !joins {
		c.Network, c.NetworkIPv6, c.NoMasquerade = coe.NodeNetwork{}, coe.NodeNetwork{}, nil
	}
	return c
}

// Closed returns the settings for nodes that lead nobody to pods, because namespaces are isolated by other means than networks
// of their own.
func (c NodesConfig) Closed() NodesConfig {
	c.NodePorts, c.HostPorts, c.NoMasquerade = coe.PortRange{}, nil, nil
	return c
}

// Ranges lists the ranges from which no pod may have addresses, and that no pool of pods
// may overlap. The subnets of a physical network are for the pods of its namespace alone.
func (c NodesConfig) Ranges() (all Ranges) {
	for _, n := range []coe.NodeNetwork{c.Network, c.NetworkIPv6} {
		if n.IsValid() {
			all = append(all, Range{Prefix: n.Prefix, Use: "the node network (--node-network)"})
		}
	}
	for _, p := range c.Reserved {
		all = append(all, Range{Prefix: p, Use: "the network's own links"})
	}
	for _, p := range c.Services {
		all = append(all, Range{Prefix: p, Use: "cluster addresses (--service-network)", Services: true})
	}
	for _, n := range c.Physical {
		for _, s := range n.Subnets {
			all = append(all, Range{Prefix: s, Use: fmt.Sprintf("physical network %s of namespace %s (--physical-network)", &n, n.Namespace), Namespace: n.Namespace})
		}
	}
	return all
}

// find returns the range that contains an address, or nil.
func (r Ranges) find(addr netip.Addr) *Range {
	for n := range r {
		if r[n].Contains(addr) {
			return &r[n]
		}
	}
	return nil
}

// clusterAddress reports whether an address is in a range of cluster addresses.
func (r Ranges) clusterAddress(addr netip.Addr) bool {
	in := r.find(addr)
	return in != nil && in.Services
}

// Refuse returns an error if a pool overlaps a range with another use.
func (r Ranges) Refuse(p dhcppool.Pool) error {
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

// NodeAddresses returns all addresses of nodes, with the node of each.
func NodeAddresses(nodes map[netip.Addr]*coe.Node) map[netip.Addr]*coe.Node {
	all := make(map[netip.Addr]*coe.Node, len(nodes))
	for _, n := range nodes {
		for _, a := range n.FurtherIPs() {
			if before := all[a]; before == nil || n.Identity() < before.Identity() {
				all[a] = n // nodes behind one address share it
			}
		}
	}
	// the node's own address takes precedence over a further address of another node
	maps.Copy(all, nodes)
	return all
}

// useEgress is the use of an egress address.
const useEgress = "an EgressIP"

// reserved are the addresses that no service may have as an external address.
type reserved struct {
	nodes  map[netip.Addr]string // the node of each address
	ranges Ranges
}

// newReserved collects the addresses that the settings, the pools, the ServiceCIDRs, the nodes and the EgressIPs reserve.
func newReserved(cfg Config, pools []dhcppool.Pool, services []netip.Prefix, nodes map[netip.Addr]*coe.Node, egress []*coe.EgressIP) reserved {
	v := reserved{nodes: map[netip.Addr]string{}, ranges: cfg.Nodes.Ranges()}
	add := func(p netip.Prefix, use string, services bool) {
		v.ranges = append(v.ranges, Range{Prefix: p, Use: use, Services: services})
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
	for addr, n := range NodeAddresses(nodes) {
		if !cfg.Nodes.Ranges().clusterAddress(addr) {
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
	return v.refuse("cluster address", addr, func(r Range) bool { return r.Use != "pods" && !r.Services })
}

// external returns the reason why an address cannot be an external address, or nil.
func (v reserved) external(addr netip.Addr) *coe.Refusal {
	return v.refuse("external address", addr, func(Range) bool { return true })
}

func (v reserved) refuse(what string, addr netip.Addr, counts func(Range) bool) *coe.Refusal {
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
	if refused := v.refuse("egress address", addr, func(r Range) bool { return r.Use != useEgress }); refused != nil {
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
