package coe

import (
	"net/netip"
	"slices"
)

// Gateway is a gateway that a client has configured: a router on a node to a network outside the cluster.
type Gateway struct {
	Node    netip.Addr   // internal address; the key
	Chassis string       // ID of the node's switch
	Address netip.Prefix // the gateway's address outside, with the length of the network there
	NextHop netip.Addr   // the router outside
	// IPv6 is the same for IPv6; zero if pods leave by IPv6 through their nodes.
	IPv6 GatewayFamily
	// Pinned are ranges of pods that leave by the gateway although they are on other nodes.
	Pinned []netip.Prefix
	// Services is set if clients outside reach services by the gateway.
	Services bool
	// Unreadable is set if the entry of the gateway cannot be read. Then only Node is set, and Pinned as far as it can
	// be read. PinsUnknown is set if it cannot, and IPv6Unknown if the gateway can have had IPv6.
	Unreadable, PinsUnknown, IPv6Unknown bool
}

// GatewayFamily is what a gateway has outside in one IP family.
type GatewayFamily struct {
	Address netip.Prefix
	NextHop netip.Addr
}

// Families returns what the gateway has outside in each family that it has, IPv4 first.
func (g *Gateway) Families() []GatewayFamily {
	all := []GatewayFamily{{g.Address, g.NextHop}, g.IPv6}
	return slices.DeleteFunc(all, func(f GatewayFamily) bool { return !f.Address.IsValid() })
}

// Leads reports whether pods leave by the gateway with the family of an address, and not by their nodes. The pods of an
// unreadable gateway do not leave with the families that it can have had.
func (g *Gateway) Leads(a netip.Addr) bool {
	return a.Is4() || g.IPv6Unknown || g.IPv6.Address.IsValid()
}

// In returns what the gateway has in the family of an address; zero if it has nothing.
func (g *Gateway) In(a netip.Addr) GatewayFamily {
	for _, f := range g.Families() {
		if f.NextHop.Is4() == a.Is4() {
			return f
		}
	}
	return GatewayFamily{}
}

// PinnedTo returns the one of some gateways that pins an address; nil if none does.
func PinnedTo(gateways []*Gateway, a netip.Addr) (to *Gateway) {
	bits := -1
	for _, g := range gateways {
		if g.PinsUnknown && g.Leads(a) && bits < 0 { // of all pods
			to, bits = g, 0
		}
		for _, p := range g.Pinned {
			if p.Contains(a) && g.Leads(a) && p.Bits() > bits {
				to, bits = g, p.Bits()
			}
		}
	}
	return to
}

// GatewayOf returns the gateway by which a pod on a node leaves with one of its addresses; nil if it leaves by its node.
func GatewayOf(gateways []*Gateway, node, a netip.Addr) *Gateway {
	if to := PinnedTo(gateways, a); to != nil {
		return to
	}
	for _, g := range gateways {
		if g.Node == node && g.Leads(a) {
			return g
		}
	}
	return nil
}

// MaxServingGateways is the maximum number of gateways with Services: each has load balancers for all services.
const MaxServingGateways = 16
