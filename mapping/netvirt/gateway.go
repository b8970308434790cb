package netvirt

import (
	"net/netip"
	"slices"
)

// Gateway is a gateway on a node: a router between a Transit and a network outside the cluster (OVN: a
// gateway router). It translates the source of packets of pods to its own address. The pods of
// its node leave by it, and the pods of Pinned, wherever they are. A gateway that cannot work has no Link, and
// neither Chassis, Address, NextHop, IPv6, Inside nor Services: these pods do not leave then.
type Gateway struct {
	Node    netip.Addr   // the key
	Network netip.Prefix // the NodeNetwork's, whose way out the gateway replaces
	Transit string       // the NodeNetwork's
	Chassis string       // ID of the node's switch (external_ids:system-id)
	Address netip.Prefix // the gateway's address outside, with the length of the network there
	NextHop netip.Addr   // the router outside
	Link    netip.Prefix // a /30 between Transit and gateway: first the Transit's address, then the gateway's
	// IPv6 is the same for IPv6, with a /126; zero if Pods has no IPv6 range.
	IPv6 GatewayFamily
	// Pods are the ranges of pods: the gateway translates their addresses, and routes to them.
	Pods PrefixList
	// Pinned are the ranges in Pods whose pods leave by the gateway although they are on other nodes. The
	// longest range of all gateways decides.
	Pinned PrefixList
	// Inside are the ranges of pods, of cluster addresses and of links and nodes in the network. No packet
	// leaves to an address there.
	Inside PrefixList
	// Services is set if clients outside reach services by the gateway: GatewayVIPs. External are the ranges outside
	// Inside that can have their addresses, besides Address.
	Services bool
	External PrefixList
	// Nodes are the nodes with a management port, if Services is set: their programs can be endpoints. Each is a whole
	// address.
	Nodes PrefixList
	// Own are the addresses outside Inside that policies take for the node, if Services is set. Nobody outside has them.
	Own PrefixList
	// SourcePorts are the ports "first-last" that pods have outside, if Services is set: none is a node port.
	SourcePorts string
}

// GatewayFamily is what a Gateway has in one IP family.
type GatewayFamily struct {
	Address netip.Prefix
	NextHop netip.Addr
	Link    netip.Prefix
}

// Families returns what a gateway that works has in each family that it has, IPv4 first.
func (o Gateway) Families() []GatewayFamily {
	all := []GatewayFamily{{o.Address, o.NextHop, o.Link}, o.IPv6}
	return slices.DeleteFunc(all, func(f GatewayFamily) bool { return !f.Link.IsValid() })
}

// Hop returns the address of the gateway on the link for the family of an address; it is not ok if there is none.
func (o Gateway) Hop(family netip.Addr) (hop netip.Addr, ok bool) {
	for _, f := range o.Families() {
		if f.Link.Addr().Is4() == family.Is4() {
			return f.LinkAddress().Addr(), true
		}
	}
	return netip.Addr{}, false
}

// TransitAddress returns the address of the transit on the link.
func (f GatewayFamily) TransitAddress() netip.Prefix { return f.onLink(f.Link.Addr().Next()) }

// LinkAddress returns the address of the gateway on the link.
func (f GatewayFamily) LinkAddress() netip.Prefix { return f.onLink(f.Link.Addr().Next().Next()) }

func (f GatewayFamily) onLink(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, f.Link.Bits()) }

// Translates reports whether the gateway translates the addresses of a prefix.
func (o Gateway) Translates(p netip.Prefix) bool {
	for _, pods := range o.Pods.All() {
		if pods.Bits() <= p.Bits() && pods.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// Key implements Object.
func (o Gateway) Key() Key { return GatewayKey(o.Node) }

// GatewayKey returns the key of the gateway on a node.
func GatewayKey(node netip.Addr) Key { return Key{KindGateway, node.String()} }

// Refs implements Object.
func (o Gateway) Refs() []Key { return []Key{{KindNodeNetwork, o.Network.String()}} }

// Scope implements Object.
func (o Gateway) Scope() Scope { return Cluster }

func (Gateway) sealed() {}
