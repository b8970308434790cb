package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Links returns the ranges from which gateways lead clients to services.
func Links(network netvirt.NodeNetwork, gateways []*coe.Gateway) netvirt.PrefixList {
	if !slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return g.Services }) {
		return ""
	}
	all := []netip.Prefix{nodenet.GatewayLinks}
	if network.PrefixIPv6.IsValid() {
		all = append(all, nodenet.GatewayLinksIPv6)
	}
	return netvirt.NewPrefixList(all...)
}

// OnNode returns the ranges outside that pods reach by their own nodes although they leave by gateways.
func OnNode(external []netip.Prefix, gateways []*coe.Gateway) []netip.Prefix {
	return append(External(external, gateways), linkLocal)
}

// External returns those ranges of external addresses that have services only, of the families with which pods
// leave by gateways.
func External(external []netip.Prefix, gateways []*coe.Gateway) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(external), func(p netip.Prefix) bool {
		led := slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return g.Leads(p.Addr()) })
		return !led || slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return tooWide(p, g) != "" })
	})
}

// tooWide returns why pods reach a range of external addresses by a gateway; empty if they do not. A range inside the
// network outside has addresses of services only. A few ranges that are shorter than a quarter of an address have every
// address, and no packet would leave by a gateway.
func tooWide(p netip.Prefix, g *coe.Gateway) string {
	outside := g.In(p.Addr())
	switch {
	case !g.Leads(p.Addr()):
		return ""
	case p.Bits() < p.Addr().BitLen()/4:
		return "is too wide"
	case p.Overlaps(outside.Address) && p.Bits() <= outside.Address.Bits():
		return fmt.Sprintf("has the network outside, %s", outside.Address.Masked())
	case p.Contains(outside.Address.Addr()), p.Contains(outside.NextHop):
		return fmt.Sprintf("has the address of the gateway or of its next hop, %s", outside.NextHop)
	}
	return ""
}
