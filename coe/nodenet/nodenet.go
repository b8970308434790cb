// Package nodenet has the ranges of addresses that the network uses for itself, and computes which addresses of a range each node has by
// its number. It knows no node, and keeps nothing.
package nodenet

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Range is a range of addresses: one for the gateway, and three for every node, as a
// function of the node's number. Address and ServiceAddress ascend from the begin of the range, so
// that nodes keep them from releases that gave them no third one. EdgeAddress descends from its end. Of an
// IPv6 range only the first 2^32 addresses count.
type Range struct{ netip.Prefix }

// size returns the number of addresses; 0 if the range cannot be used.
func (n Range) size() uint64 {
	if !n.IsValid() || n.free() < 3 {
		return 0
	}
	return 1 << min(n.free(), 32)
}

// free returns the number of bits after the prefix.
func (n Range) free() int { return n.Addr().BitLen() - n.Bits() }

// Numbers returns the maximum number for a new node. Numbers start at 1.
func (n Range) Numbers() uint32 {
	if n.size() == 0 {
		return 0
	}
	return uint32((n.size() - 3) / 3) // without the first pair, and the last address
}

// Has reports whether a node may have a number. Nodes of releases that gave nodes two addresses can
// have numbers above Numbers.
func (n Range) Has(number uint32) bool {
	return number > 0 && uint64(number)+2 <= n.size()/2
}

// Gateway returns the gateway address of the nodes.
func (n Range) Gateway() netip.Addr { return n.nth(1) }

// Address returns a node's address in the range.
func (n Range) Address(number uint32) netip.Addr { return n.nth(2 * number) }

// ServiceAddress returns the source address of a node's own traffic to services.
func (n Range) ServiceAddress(number uint32) netip.Addr { return n.nth(2*number + 1) }

// EdgeAddress returns the source address of traffic of others that a node leads to pods and services.
// last is the highest number of a node. The result is invalid if another node has the address as its
// Address or ServiceAddress, which is only possible while last is above Numbers.
func (n Range) EdgeAddress(number, last uint32) netip.Addr {
	i := n.size() - 1 - uint64(number)
	if !n.Has(number) || i <= 2*uint64(last)+1 {
		return netip.Addr{}
	}
	return n.nth(uint32(i))
}

// Number returns the number of the node that has an address in the range as its Address; 0 for none. The range is
// of IPv4.
func (n Range) Number(a netip.Addr) uint32 {
	if !a.Is4() || !n.IsValid() || !n.Contains(a) {
		return 0
	}
	first, this := n.Masked().Addr().As4(), a.As4()
	i := binary.BigEndian.Uint32(this[:]) - binary.BigEndian.Uint32(first[:])
	if i%2 != 0 || !n.Has(i/2) {
		return 0
	}
	return i / 2
}

// nth returns an address of the range. The last 32 bits of a range that can be used have room for each.
func (n Range) nth(i uint32) netip.Addr {
	a := n.Masked().Addr().AsSlice()
	last := a[len(a)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)+i)
	nth, _ := netip.AddrFromSlice(a) // 4 or 16 bytes
	return nth
}

// MAC returns the MAC address of a node's management port: 0a:58, then its IPv4 address. The range is of IPv4.
func (n Range) MAC(number uint32) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, n.Address(number).AsSlice()...)).String()
}

// IsolatedIPv6 returns the address that a node has in isolated namespaces beside its internal IPv4 address, which is
// its last 32 bits; the zero value for a node with an internal IPv6 address. Packets with this address do not leave
// the network of the pods.
func IsolatedIPv6(node netip.Addr) netip.Addr {
	if !node.Is4() {
		return netip.Addr{}
	}
	a, v4 := NodesIsolatedIPv6.Addr().As16(), node.As4()
	copy(a[12:], v4[:])
	return netip.AddrFrom16(a)
}
