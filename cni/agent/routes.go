package agent

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// routes are those that the pod has by the link of an attachment, of those that its
// record has. The ranges are the pods'.
//
//	isDefaultGateway   link    in the place of the record's default routes
//	true               any     they themselves
//	false              any     none: the link leads to its own subnet
//	absent             eth0    they themselves
//	absent             other   routes to the pods' ranges: eth0 leads everywhere else
func (at *attachment) routes(r *uplink.Record, ranges []netip.Prefix) []links.Route {
	absent := at.network.IsDefaultGateway == nil
	everywhere := absent && at.IfName == primaryLink || !absent && *at.network.IsDefaultGateway
	var all []links.Route
	for _, route := range r.Routes {
		switch {
		case route.Destination.Bits() > 0 || everywhere:
			all = append(all, links.Route{Destination: route.Destination, Gateway: route.NextHop})
		case absent:
			all = append(all, routesTo(ranges, route.NextHop, r.Addresses)...)
		}
	}
	return all
}

// routesTo lead through a gateway to those of its family of ranges that the subnets of
// addresses do not hold.
func routesTo(ranges []netip.Prefix, gateway netip.Addr, addresses []uplink.Address) []links.Route {
	var all []links.Route
	for _, to := range ranges {
		holds := func(a uplink.Address) bool { return a.Length <= to.Bits() && a.Prefix().Contains(to.Addr()) }
		if to.Addr().Is4() == gateway.Is4() && !slices.ContainsFunc(addresses, holds) {
			all = append(all, links.Route{Destination: to, Gateway: gateway})
		}
	}
	return all
}

// podRanges are the ranges of the network's pods, as far as the bridge has told.
func (a *Agent) podRanges() []netip.Prefix {
	if place, _, _ := a.cfg.Uplink.Place(); place != nil {
		return place.Pods
	}
	return nil
}
