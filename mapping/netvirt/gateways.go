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

// Networks returns the networks of the gateways.
func (l GatewayList) Networks() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range l.Strings() {
		all = append(all, netip.MustParsePrefix(text).Masked())
	}
	return all
}

// Has reports whether a gateway, with the length of its network, is in the list.
func (l GatewayList) Has(gateway netip.Addr, network netip.Prefix) bool {
	return slices.Contains(l.Strings(), netip.PrefixFrom(gateway, network.Bits()).String())
}
