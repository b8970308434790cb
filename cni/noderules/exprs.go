package noderules

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// register is the register that expressions pass values by.
const register = matches.Register

// The codes of ICMP host unreachable and port unreachable, and of ICMPv6 address unreachable.
const hostUnreachable, portUnreachable, addressUnreachable = 1, 3, 3

// inByGroup matches packets by the interface group of their link.
func inByGroup(group uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.NativeEndian.AppendUint32(nil, group)},
	}
}

// noRouteBack matches packets whose source is not routed to the link that they came in by.
func noRouteBack() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: register, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true, ResultOIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: make([]byte, 4)},
	}
}

// The offsets of addresses in an IPv4 header, and in an IPv6 header.
const (
	ipSource, ipDestination     = 12, 16
	ipv6Source, ipv6Destination = 8, 24
)

// source and destination match packets from and to a range of addresses.
func source(from netip.Prefix) []expr.Any { return inNetwork(ipSource, ipv6Source, from) }

func destination(to netip.Prefix) []expr.Any { return inNetwork(ipDestination, ipv6Destination, to) }

// single returns the range that has only an address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// inNetwork matches packets with the address at an offset of the header of IPv4 or IPv6 in a range.
func inNetwork(offset4, offset6 uint32, network netip.Prefix) []expr.Any {
	offset, bits := offset4, network.Addr().BitLen()
	if network.Addr().Is6() {
		offset = offset6
	}
	size := uint32(bits / 8)
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: size, Mask: net.CIDRMask(network.Bits(), bits), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: network.Masked().Addr().AsSlice()},
	}
}

// ofFamily matches packets of the family of an address, in the table of both families.
func ofFamily(a netip.Addr) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if a.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
	}
}

// notTo matches packets of the family of an address that are for another one.
func notTo(a netip.Addr) []expr.Any {
	to := destination(single(a))
	to[len(to)-1].(*expr.Cmp).Op = expr.CmpOpNeq
	return slices.Concat(ofFamily(a), to)
}

// notICMPv6 matches packets of other protocols.
func notICMPv6() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{unix.IPPROTO_ICMPV6}},
	}
}

// linkLocalNotICMP matches packets with a link-local IPv6 source that are not of ICMPv6, in the table of both families.
func linkLocalNotICMP() []expr.Any {
	linkLocal := netip.MustParsePrefix("fe80::/10")
	return slices.Concat(ofFamily(linkLocal.Addr()), source(linkLocal), notICMPv6())
}

// answers matches packets of a connection that come from its server.
func answers() []expr.Any {
	const reply = 1
	return []expr.Any{&expr.Ct{Register: register, Key: expr.CtKeyDIRECTION}, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{reply}}}
}

// lastHop matches IPv4 packets that a router must not forward, because their time to live ends there.
func lastHop() []expr.Any {
	const timeToLive = 8
	return slices.Concat(ofFamily(netip.IPv4Unspecified()), []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: timeToLive, Len: 1},
		&expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: []byte{1}},
	})
}

// tcpTo matches packets to a range of TCP ports.
func tcpTo(first, last uint16) []expr.Any {
	const offset, size = 2, 2 // of the destination's port in a TCP header
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size},
		&expr.Range{Op: expr.CmpOpEq, Register: register, FromData: port(first), ToData: port(last)},
	}
}

func snat(as netip.Addr) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if as.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Counter{},
		&expr.Immediate{Register: register, Data: as.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: register},
	}
}
