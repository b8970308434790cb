package netvirt

import (
	"net/netip"
	"slices"
	"strings"
)

// GatewayList is a set of gateway addresses with the lengths of their networks: sorted, without duplicates, separated by
// commas.
type GatewayList string

// NewGatewayList returns the set of the given gateways.
func NewGatewayList(gateways ...netip.Prefix) GatewayList {
	sorted := slices.Clone(gateways)
	slices.SortFunc(sorted, netip.Prefix.Compare)
	text := make([]string, 0, len(sorted))
	for _, g := range slices.Compact(sorted) {
		text = append(text, g.String())
	}
	return GatewayList(strings.Join(text, ","))
}

// ParseGatewayList parses a list; it is not ok if the text is not a GatewayList.
func ParseGatewayList(text string) (list GatewayList, ok bool) {
	var all []netip.Prefix
	for _, part := range splitList(text) {
		g, err := netip.ParsePrefix(part)
		if err != nil {
			return "", false
		}
		all = append(all, g)
	}
	list = NewGatewayList(all...)
	return list, string(list) == text
}

// Strings returns the gateways as texts.
func (l GatewayList) Strings() []string { return splitList(string(l)) }

// prefixes returns the gateways with the lengths of their networks.
func (l GatewayList) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range l.Strings() {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// Addresses returns the addresses of the gateways, sorted, without duplicates.
func (l GatewayList) Addresses() []netip.Addr {
	var all []netip.Addr
	for _, g := range l.prefixes() {
		all = append(all, g.Addr())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// WithAddress returns the entries with an address, as texts.
func (l GatewayList) WithAddress(gateway netip.Addr) []string {
	return slices.DeleteFunc(l.Strings(), func(text string) bool { return netip.MustParsePrefix(text).Addr() != gateway })
}

// Networks returns the networks of the gateways.
func (l GatewayList) Networks() []netip.Prefix {
	all := l.prefixes()
	for n := range all {
		all[n] = all[n].Masked()
	}
	return all
}

// Around returns the network of a gateway that contains an address; invalid if there is none.
func (l GatewayList) Around(gateway, address netip.Addr) netip.Prefix {
	for _, g := range l.prefixes() {
		if g.Addr() == gateway && g.Contains(address) {
			return g.Masked()
		}
	}
	return netip.Prefix{}
}
