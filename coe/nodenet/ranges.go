package nodenet

import (
	"encoding/binary"
	"net/netip"
)

// The ranges that the network uses for itself. They do not overlap, and have no well-known address, such as that of metadata
// servers.
var (
	// TransitLinks has the addresses that the OVN backend gives to its own links.
	TransitLinks = netip.MustParsePrefix("100.64.0.0/11")
	// GatewayLinks has the addresses of the links to gateways, and GatewayLinksIPv6 their IPv6 addresses. They exist only in
	// routers. The rules of node ports have them too (cni/nodeports/family.go).
	GatewayLinks     = netip.MustParsePrefix("169.254.192.0/18")
	GatewayLinksIPv6 = netip.MustParsePrefix("fd63:6f65:6272:1::/114")
	// EgressWays has the addresses of the ways of EgressIPs, on the router of GatewayLinks.
	EgressWays = netip.MustParsePrefix("169.254.64.0/18")
	// NodesIsolatedIPv6 has the IPv6 addresses that nodes have in isolated namespaces.
	NodesIsolatedIPv6 = netip.MustParsePrefix("fd63:6f65:6272::/96")
)

// LinkRanges returns the ranges of the links of the network, which exist without isolated namespaces.
func LinkRanges() []netip.Prefix {
	return []netip.Prefix{TransitLinks, GatewayLinks, GatewayLinksIPv6, EgressWays}
}

// OwnRanges returns all ranges that the network uses for itself.
func OwnRanges() []netip.Prefix { return append(LinkRanges(), NodesIsolatedIPv6) }

// GatewayLink returns the link of the gateway on the node with a number, four addresses of GatewayLinks or
// GatewayLinksIPv6; ok is false if the range has none for it.
func GatewayLink(links netip.Prefix, number uint32) (link netip.Prefix, ok bool) {
	bits := links.Addr().BitLen() - 2
	if number >= 1<<(bits-links.Bits()) {
		return netip.Prefix{}, false
	}
	a := links.Addr().AsSlice()
	last := a[len(a)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)+number<<2)
	first, _ := netip.AddrFromSlice(a) // 4 or 16 bytes
	return netip.PrefixFrom(first, bits), true
}
