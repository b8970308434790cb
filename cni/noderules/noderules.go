// Package noderules writes the nftables rules of a node in the pod network. They drop and refuse packets that the network must not
// carry: of pods to databases and to OpenDaylight, between isolated namespaces, with forged sources, and without the egress address
// of their pod. They also give another source to what leaves the pod network, and to what the node sends to services.
//
// It knows what the rules are for from a Wanted alone, and recognises its rules by their comments. It knows neither the bridge nor the
// switch, and makes neither links nor routes. Package nodeports has the rules of the ports of services, in tables of its own.
package noderules

import "net/netip"

// The node's own links, which rules recognise by their name.
const (
	// Link is the link of the management port.
	Link = "coe0"
	// EgressPrefix begins the names of links of egress addresses.
	EgressPrefix = "coe-eg"
	// NamespacePrefix begins the names of links in namespaces: isolated ones, or all if pods send to services by them.
	NamespacePrefix = "coe-"
)

// Group is the interface group of the other ends of these links, in the switch.
const Group = 0xc0f

// Wanted is what a node needs rules for.
type Wanted struct {
	Isolated bool
	// Balances: pods send to services by the links of their namespaces. If they are not isolated, they also send to what is outside
	// the network by these.
	Balances bool
	// OfPorts: the router of the network has the MAC addresses of ports of the switch.
	OfPorts    bool
	IPv4, IPv6 Family
	Egress     []EgressWay // sorted by link
	// Namespaces are the isolated namespaces whose pods the node leads to services; sorted by link.
	Namespaces  []Namespace
	Databases   []uint16 // further ports of OVN's databases, in order
	Controllers []netip.Addr
}

// Family is what is wanted for one IP family.
type Family struct {
	Source   netip.Addr // of the routes; zero if the family is not used
	Nodes    netip.Prefix
	Service  netip.Addr // source of the node's own traffic to services
	Edge     netip.Addr // source of other traffic to services; zero if there must be none
	Services []netip.Prefix
	// Routed are the destinations outside the cluster to which pods keep their address.
	Routed []netip.Prefix
}

// EgressWay is an egress address that packets get which come in by a link. Only pods that are selected send there, so
// the node need not know them, and nothing else may happen to their packets.
type EgressWay struct {
	Link    string
	Address netip.Addr
	Owner   bool // a NIC of the node has the address
}

// Namespace is an isolated namespace whose pods the node leads to services.
type Namespace struct {
	Link string
	// Unrouted are the IPv4 addresses of its pods that the node does not route to the link.
	Unrouted []netip.Addr
}
