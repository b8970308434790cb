package agent

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// routes returns the routes of the pod through the link of an attachment, from the routes
// of its record. ranges are the address ranges of all pods.
//
// isDefaultGateway   link    default routes of the record
// true               any     kept
// false              any     dropped: the link reaches its own subnet only
// absent             eth0    kept
// absent             other   replaced by routes to ranges: eth0 has the default route
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

// routesTo returns routes through a gateway to the ranges of its family, without the
// ranges inside the subnets of addresses.
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

// podRanges returns the address ranges of pods that the bridge has reported.
func (a *Agent) podRanges() []netip.Prefix {
	if place, _, _ := a.cfg.Uplink.Place(); place != nil {
		return place.Pods
	}
	return nil
}
