package nodeports

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// has reports whether some elements have one of some sets.
func has(elements []Element, sets ...string) bool {
	return slices.ContainsFunc(elements, func(e Element) bool { return slices.Contains(sets, e.Set) })
}

// LeadsOthers reports whether a port of a service with these elements leads clients other than the node's programs.
func LeadsOthers(elements []Element) bool { return has(elements, Services) }

// Dated reports whether a port with these elements leads to endpoints on other nodes, which must be known to be current.
func Dated(elements []Element) bool { return has(elements, edged, elsewhere) }

// LeadsTo reports whether a port with these elements leads to a target. A cluster address is one for some clients, or if the port has no
// endpoints.
func LeadsTo(elements []Element, to netip.AddrPort, toService bool) bool {
	balanced := has(elements, balancers)
	return slices.ContainsFunc(elements, func(e Element) bool {
		return e.Value == addressOf(to) && (e.Set != Services || toService || !balanced)
	})
}

// EndpointsOf returns the endpoints of a port with these elements.
func EndpointsOf(elements []Element) (all []netip.AddrPort) {
	for _, e := range elements {
		if e.Set == endpoints {
			all = append(all, addressIn(e.Value))
		}
	}
	return all
}

// Refuses reports whether a client must not reach a port of a service with these elements.
func (f *Family) Refuses(elements []Element, client netip.Addr) bool {
	only := false
	for _, e := range elements {
		switch e.Set {
		case restricted:
			only = true
		case sources:
			if f.rangeOf(e).Contains(client) {
				return false
			}
		}
	}
	return only
}

// rangeOf returns the clients of an element of sources.
func (f *Family) rangeOf(e Element) netipx.IPRange {
	size := int(f.size)
	half := len(e.Key) / 2
	first, _ := netip.AddrFromSlice([]byte(e.Key[half-size : half]))
	last, _ := netip.AddrFromSlice([]byte(e.Key[2*half-size:]))
	return netipx.IPRangeFrom(first, last)
}
