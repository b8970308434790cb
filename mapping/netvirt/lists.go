package netvirt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AddrList is a list of addresses in canonical text, comma-separated. It is a string so
// that objects that contain it are comparable.
type AddrList string

// NewAddrList returns the list of the given addresses, in their order.
func NewAddrList(addrs ...netip.Addr) AddrList {
	text := make([]string, len(addrs))
	for i, a := range addrs {
		text[i] = a.String()
	}
	return AddrList(strings.Join(text, ","))
}

// ParseAddrList parses a comma-separated list of addresses.
func ParseAddrList(text string) (AddrList, error) {
	var addrs []netip.Addr
	for _, part := range splitList(text) {
		a, err := netip.ParseAddr(part)
		if err != nil {
			return "", fmt.Errorf("parse address list: %w", err)
		}
		addrs = append(addrs, a)
	}
	return NewAddrList(addrs...), nil
}

// All returns the addresses.
func (l AddrList) All() []netip.Addr {
	var addrs []netip.Addr
	for _, part := range splitList(string(l)) {
		addrs = append(addrs, netip.MustParseAddr(part))
	}
	return addrs
}

// EndpointList is a set of endpoints in canonical text: "address:port" (IPv6 in brackets),
// sorted, comma-separated. It is a string so that objects that contain it are comparable.
type EndpointList string

// NewEndpointList returns the set of the given endpoints, without duplicates.
func NewEndpointList(endpoints ...netip.AddrPort) EndpointList {
	sorted := slices.SortedFunc(slices.Values(endpoints), netip.AddrPort.Compare)
	sorted = slices.Compact(sorted)
	text := make([]string, len(sorted))
	for i, e := range sorted {
		text[i] = e.String()
	}
	return EndpointList(strings.Join(text, ","))
}

// All returns the endpoints.
func (l EndpointList) All() []netip.AddrPort {
	var endpoints []netip.AddrPort
	for _, part := range splitList(string(l)) {
		endpoints = append(endpoints, netip.MustParseAddrPort(part))
	}
	return endpoints
}

// PlaceList is a list of sets of nodes, by address, in canonical text: addresses are sorted and
// comma-separated, sets are sorted by their first address and separated by semicolons. It is a
// string so that objects that contain it are comparable.
type PlaceList string

// NewPlaceList returns the list of the given sets, which are not empty and have no address in
// common.
func NewPlaceList(places ...[]netip.Addr) PlaceList {
	sorted := make([][]netip.Addr, len(places))
	for i, p := range places {
		sorted[i] = slices.SortedFunc(slices.Values(p), netip.Addr.Compare)
	}
	slices.SortFunc(sorted, func(a, b []netip.Addr) int { return a[0].Compare(b[0]) })
	text := make([]string, len(sorted))
	for i, p := range sorted {
		text[i] = string(NewAddrList(p...))
	}
	return PlaceList(strings.Join(text, ";"))
}

// All returns the sets.
func (l PlaceList) All() [][]netip.Addr {
	if l == "" {
		return nil
	}
	var all [][]netip.Addr
	for text := range strings.SplitSeq(string(l), ";") {
		all = append(all, AddrList(text).All())
	}
	return all
}

// NearList is an EndpointList for each place of a PlaceList, in its order. A semicolon ends each.
type NearList string

// NewNearList returns the list of the given lists.
func NewNearList(lists ...EndpointList) NearList {
	var text strings.Builder
	for _, l := range lists {
		text.WriteString(string(l))
		text.WriteByte(';')
	}
	return NearList(text.String())
}

// All returns the lists.
func (l NearList) All() []EndpointList {
	var all []EndpointList
	for text := range strings.SplitAfterSeq(string(l), ";") {
		if list, ended := strings.CutSuffix(text, ";"); ended {
			all = append(all, EndpointList(list))
		}
	}
	return all
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
