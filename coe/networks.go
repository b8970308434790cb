package coe

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

// Networks are the address ranges that nodes need to know, chosen for the whole cluster.
type Networks struct {
	// Nodes is the range of the IPv4 addresses of management ports. NodesIPv6 is that of their IPv6 addresses; zero
	// if they have none.
	Nodes     nodenet.Range `json:"nodes"`
	NodesIPv6 nodenet.Range `json:"nodes-ipv6,omitzero"`
	// Isolated is set if nodes have a port in each of their elan-instances instead.
	Isolated bool `json:"isolated,omitempty"`
	// NodesBalance is set if nodes lead pods to services, because the network does not. Pods send to services by a port of their
	// node in each elan-instance. Without isolation they also reach what is outside of the network by it.
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
	// Services is set if the gateway leads clients to services. Then its addresses in nodenet.GatewayLinks and GatewayLinksIPv6
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
	all := append(slices.Clone(n.Pods), nodenet.GatewayLinks)
	if slices.ContainsFunc(serving, func(g NetworkGateway) bool { return g.IPv6 }) {
		all = append(all, nodenet.GatewayLinksIPv6)
	}
	return all
}

// IsolatedEdge returns the source of what a node leads to services, if it leads the pods of isolated namespaces there; else zero. Pods
// send to services by the address of their node, so it must be an IPv4 address.
func (n *Networks) IsolatedEdge(f *NodeFact) netip.Addr {
	if edges := n.IsolatedEdges(); f != nil && f.Node.Is4() && edges.IsValid() && edges.Has(f.Number) {
		return edges.Address(f.Number)
	}
	return netip.Addr{}
}

// IsolatedEdges returns the range of IsolatedEdge; zero if nodes lead no pods of isolated namespaces.
func (n *Networks) IsolatedEdges() nodenet.Range {
	if n == nil || !n.Isolated || !n.NodesBalance {
		return nodenet.Range{}
	}
	return n.Nodes
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
	// ChassisChanged: the agent reports another one now, or OVN has the node by another name. Gateways are not bound to it.
	ChassisChanged bool `json:"chassis-changed,omitempty"`
}
