package agent

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// routes returns the routes of the pod of a port, and the neighbours that they lead by.
func (a *Agent) routes(p vif.Port, r *uplink.Record, place *uplink.Place) ([]links.Route, []links.Neighbour) {
	return byNode(routesOf(p, r, podRanges(place, a.cfg.Confirmed)), place, a.cfg.Confirmed, r.Addresses)
}

// routesOf returns the routes of the pod through the link of a port, from the routes
// of its record. ranges are the address ranges of all pods.
//
// isDefaultGateway   link    default routes of the record
// true               any     kept
// false              any     dropped: the link reaches its own subnet only
// absent             eth0    kept
// absent             other   replaced by routes to ranges: eth0 has the default route
func routesOf(p vif.Port, r *uplink.Record, ranges []netip.Prefix) []links.Route {
	absent := p.DefaultGateway == ""
	everywhere := absent && p.Attachment.IfName == primaryLink || p.DefaultGateway == "true"
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

// byNode changes the routes of a pod whose node has ports in the elan-instances of pods. With OpenDaylight these make the
// node a neighbour of the pod.
//
// namespaces    routes
// isolated      further ones, if openDaylight: to the node and, if the place has a WayOut, by it to services
// joined        the default route leads by the node, if the place has a WayOut; those to pods and nodes stay with the gateway
//
// A link without a default route stays as it is: a pod can have several links.
func byNode(all []links.Route, place *uplink.Place, openDaylight bool, addresses []uplink.Address) ([]links.Route, []links.Neighbour) {
	isDefault := func(r links.Route) bool { return r.Destination == everywhere4 }
	if place == nil || !place.Address.Is4() || !openDaylight || !place.Isolated && place.WayOut == nil || !slices.ContainsFunc(all, isDefault) {
		return all, nil
	}
	mac := place.MAC
	if place.WayOut != nil {
		mac = place.WayOut.MAC
	}
	node := []links.Neighbour{{Address: place.Address, MAC: mac}}
	direct := links.Route{Destination: netip.PrefixFrom(place.Address, place.Address.BitLen())}
	if place.Isolated {
		return slices.Concat([]links.Route{direct}, servicesBy(place), all), node
	}
	inside := append(slices.Clone(place.Pods), netip.PrefixFrom(place.Address, place.Length).Masked())
	out := []links.Route{direct}
	for _, r := range all {
		if !isDefault(r) {
			out = append(out, r)
			continue
		}
		out = append(out, routesTo(inside, r.Gateway, addresses)...)
		out = append(out, links.Route{Destination: everywhere4, Gateway: place.Address})
	}
	return out, node
}

// servicesBy returns the routes of a pod of an isolated namespace to services by its node, if that leads there.
func servicesBy(place *uplink.Place) []links.Route {
	if place.WayOut == nil {
		return nil
	}
	return routesTo(place.Services, place.Address, nil)
}

var everywhere4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

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

// podRanges returns the address ranges of pods that the bridge has reported, for links without a default route.
func podRanges(place *uplink.Place, openDaylight bool) []netip.Prefix {
	if place != nil && !openDaylight { // there the link with the default route has routes to them
		return place.Pods
	}
	return nil
}
