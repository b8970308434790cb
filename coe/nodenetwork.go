package coe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Networks are the address ranges that nodes need to know, chosen for the whole cluster.
type Networks struct {
	// Nodes is the range of the IPv4 addresses of management ports. NodesIPv6 is that of their IPv6 addresses; zero
	// if they have none.
	Nodes     NodeNetwork `json:"nodes"`
	NodesIPv6 NodeNetwork `json:"nodes-ipv6,omitzero"`
	// Isolated is set if nodes have a port in each of their elan-instances instead.
	Isolated bool `json:"isolated,omitempty"`
	// NodesBalance is set if nodes lead pods to services, because the network does not. Pods reach what is outside of the
	// network by a port of their node in each elan-instance.
	NodesBalance bool `json:"nodes-balance,omitempty"`
	// Pods are the address ranges of pods, Services the ranges of cluster addresses; sorted.
	Pods     []netip.Prefix `json:"pods,omitempty"`
	Services []netip.Prefix `json:"services,omitempty"`
	// NoMasquerade are the destinations outside the cluster to which pods keep their address.
	NoMasquerade []netip.Prefix `json:"no-masquerade,omitempty"`
	// HostPorts are the ports of nodes that pods may request; sorted. Nodes serve them only with a management
	// port.
	HostPorts []PortRange `json:"host-ports,omitempty"`
	// Gateways are the gateways, sorted by node.
	Gateways []NetworkGateway `json:"gateways,omitempty"`
}

// NetworkGateway is what nodes need to know of a gateway.
type NetworkGateway struct {
	Node   netip.Addr     `json:"node"`
	Pinned []netip.Prefix `json:"pinned,omitempty"`
	// IPv6 is set if pods leave by the gateway by IPv6 too.
	IPv6 bool `json:"ipv6,omitempty"`
	// Services is set if the gateway leads clients to services. Then its addresses in GatewayLinks and GatewayLinksIPv6
	// are the clients of endpoints, which can be nodes.
	Services bool `json:"services,omitempty"`
}

// Equal reports whether both are the same.
func (g NetworkGateway) Equal(o NetworkGateway) bool {
	return g.Node == o.Node && slices.Equal(g.Pinned, o.Pinned) && g.IPv6 == o.IPv6 && g.Services == o.Services
}

// ByGateways returns the ranges of the pods of a node that leave the network by gateways: those that gateways pin, and all
// of the families of the node's own gateway.
func (n *Networks) ByGateways(node netip.Addr) (all []netip.Prefix) {
	for _, g := range n.Gateways {
		if g.Node == node {
			all = append(all, slices.DeleteFunc(slices.Clone(n.Pods), func(p netip.Prefix) bool { return p.Addr().Is6() && !g.IPv6 })...)
		}
		for _, pinned := range g.Pinned {
			for _, p := range n.Pods {
				if p.Overlaps(pinned) && p.Bits() > pinned.Bits() {
					all = append(all, p)
				} else if p.Overlaps(pinned) {
					all = append(all, pinned)
				}
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	all = slices.Compact(all)
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
		return slices.ContainsFunc(all, func(o netip.Prefix) bool { return o.Bits() < p.Bits() && o.Contains(p.Addr()) })
	})
}

// Routed returns the ranges of addresses of pods that nodes route to their management ports, and of gateways that are
// clients of services.
func (n *Networks) Routed() []netip.Prefix {
	serving := slices.DeleteFunc(slices.Clone(n.Gateways), func(g NetworkGateway) bool { return !g.Services })
	if len(serving) == 0 {
		return n.Pods
	}
	all := append(slices.Clone(n.Pods), GatewayLinks)
	if slices.ContainsFunc(serving, func(g NetworkGateway) bool { return g.IPv6 }) {
		all = append(all, GatewayLinksIPv6)
	}
	return all
}

// Valid reports whether the ranges can be used.
func (n *Networks) Valid() bool {
	return n.Isolated || n.Nodes.Numbers() > 0 && n.Nodes.Addr().Is4() && (!n.NodesIPv6.IsValid() || n.NodesIPv6.Addr().Is6())
}

// IsolatesIPv6 reports whether nodes have a port in each of their elan-instances, and pods can have IPv6 addresses.
// n may be nil.
func (n *Networks) IsolatesIPv6() bool {
	return n != nil && n.Isolated && slices.ContainsFunc(n.Pods, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// Equal reports whether both are the same.
func (n *Networks) Equal(o *Networks) bool {
	return n.Nodes == o.Nodes && n.NodesIPv6 == o.NodesIPv6 && n.Isolated == o.Isolated && n.NodesBalance == o.NodesBalance && slices.Equal(n.Pods, o.Pods) && slices.Equal(n.Services, o.Services) &&
		slices.Equal(n.NoMasquerade, o.NoMasquerade) && slices.EqualFunc(n.Gateways, o.Gateways, NetworkGateway.Equal) &&
		slices.Equal(n.HostPorts, o.HostPorts)
}

// NodeFact is what was chosen for a node.
type NodeFact struct {
	Node netip.Addr `json:"node"` // its address
	// Number determines the addresses of the node's management port; 0 if nodes have none.
	Number uint32 `json:"number"`
	// Owner is the Identity of the first node that had the address. It is empty in records
	// of releases before November 2026.
	Owner string `json:"owner,omitempty"`
	// Chassis is the chassis that its agent has reported first, if no other node has it; else empty.
	Chassis string `json:"chassis,omitempty"`
	// ChassisChanged: the agent reports another one now. OVN has the node by one of the two names.
	ChassisChanged bool `json:"chassis-changed,omitempty"`
}

// NodeNetwork is a range of addresses: one for the gateway, and three for every node, as a
// function of the node's number. Address and ServiceAddress ascend from the begin of the range, so
// that nodes keep them from releases that gave them no third one. EdgeAddress descends from its end. Of an
// IPv6 range only the first 2^32 addresses count.
type NodeNetwork struct{ netip.Prefix }

// size returns the number of addresses; 0 if the range cannot be used.
func (n NodeNetwork) size() uint64 {
	if !n.IsValid() || n.free() < 3 {
		return 0
	}
	return 1 << min(n.free(), 32)
}

// free returns the number of bits after the prefix.
func (n NodeNetwork) free() int { return n.Addr().BitLen() - n.Bits() }

// Numbers returns the maximum number for a new node. Numbers start at 1.
func (n NodeNetwork) Numbers() uint32 {
	if n.size() == 0 {
		return 0
	}
	return uint32((n.size() - 3) / 3) // without the first pair, and the last address
}

// Has reports whether a node may have a number. Nodes of releases that gave nodes two addresses can
// have numbers above Numbers.
func (n NodeNetwork) Has(number uint32) bool {
	return number > 0 && uint64(number)+2 <= n.size()/2
}

// Gateway returns the gateway address of the nodes.
func (n NodeNetwork) Gateway() netip.Addr { return n.nth(1) }

// Address returns a node's address in the range.
func (n NodeNetwork) Address(number uint32) netip.Addr { return n.nth(2 * number) }

// ServiceAddress returns the source address of a node's own traffic to services.
func (n NodeNetwork) ServiceAddress(number uint32) netip.Addr { return n.nth(2*number + 1) }

// EdgeAddress returns the source address of traffic of others that a node leads to pods and services.
// last is the highest number of a node. The result is invalid if another node has the address as its
// Address or ServiceAddress, which is only possible while last is above Numbers.
func (n NodeNetwork) EdgeAddress(number, last uint32) netip.Addr {
	i := n.size() - 1 - uint64(number)
	if !n.Has(number) || i <= 2*uint64(last)+1 {
		return netip.Addr{}
	}
	return n.nth(uint32(i))
}

// Number returns the number of the node that has an address in the range as its Address; 0 for none. The range is
// of IPv4.
func (n NodeNetwork) Number(a netip.Addr) uint32 {
	if !a.Is4() || !n.IsValid() || !n.Contains(a) {
		return 0
	}
	first, this := n.Masked().Addr().As4(), a.As4()
	i := binary.BigEndian.Uint32(this[:]) - binary.BigEndian.Uint32(first[:])
	if i%2 != 0 || !n.Has(i/2) {
		return 0
	}
	return i / 2
}

// nth returns an address of the range. The last 32 bits of a range that can be used have room for each.
func (n NodeNetwork) nth(i uint32) netip.Addr {
	a := n.Masked().Addr().AsSlice()
	last := a[len(a)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)+i)
	nth, _ := netip.AddrFromSlice(a) // 4 or 16 bytes
	return nth
}

// MAC returns the MAC address of a node's management port: 0a:58, then its IPv4 address. The range is of IPv4.
func (n NodeNetwork) MAC(number uint32) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, n.Address(number).AsSlice()...)).String()
}

// IsolatedIPv6 returns the address that a node has in isolated namespaces beside its internal IPv4 address, which is
// its last 32 bits; the zero value for a node with an internal IPv6 address. Packets with this address do not leave
// the network of the pods.
func IsolatedIPv6(node netip.Addr) netip.Addr {
	if !node.Is4() {
		return netip.Addr{}
	}
	a, v4 := NodesIsolatedIPv6.Addr().As16(), node.As4()
	copy(a[12:], v4[:])
	return netip.AddrFrom16(a)
}
