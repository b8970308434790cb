package netvirt

import "net/netip"

// Gateway is a gateway on a node: a router between a Transit and a network outside the cluster (OVN: a
// gateway router). It translates the source of packets of pods to its own address. The pods of
// its node leave by it, and the pods of Pinned, wherever they are. A gateway that cannot work has no Link, and
// neither Chassis, Address, NextHop, Inside nor Services: these pods do not leave then.
type Gateway struct {
	Node    netip.Addr   // the key
	Network netip.Prefix // the NodeNetwork's, whose way out the gateway replaces
	Transit string       // the NodeNetwork's
	Chassis string       // ID of the node's switch (external_ids:system-id)
	Address netip.Prefix // the gateway's address outside, with the length of the network there
	NextHop netip.Addr   // the router outside
	Link    netip.Prefix // a /30 between Transit and gateway: first the Transit's address, then the gateway's
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
	// Nodes are the nodes with a management port, as /32, if Services is set: their programs can be endpoints.
	Nodes PrefixList
	// Own are the IPv4 addresses that policies take for the node, as /32, if Services is set. Nobody outside has them.
	Own PrefixList
	// SourcePorts are the ports "first-last" that pods have outside, if Services is set: none is a node port.
	SourcePorts string
}

// TransitAddress returns the address of the transit on the link.
func (o Gateway) TransitAddress() netip.Prefix { return o.onLink(o.Link.Addr().Next()) }

// LinkAddress returns the address of the gateway on the link.
func (o Gateway) LinkAddress() netip.Prefix { return o.onLink(o.Link.Addr().Next().Next()) }

func (o Gateway) onLink(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, o.Link.Bits()) }

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
