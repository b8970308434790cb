package nodeports

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/matches"
)

// Family is an address family. A table is of one family, and the rules of all families are the same. They differ in
// the length of addresses, and so in the registers behind an address.
type Family struct {
	table     nftables.TableFamily
	Number    int    // AF_INET
	translate uint32 // the family of a translation
	name      string
	size      uint32 // of an address, in bytes
	// source and destination are the offsets of addresses in the header.
	source, destination uint32
	address             nftables.SetDatatype
	// Every stands for every address of the node in a key. Ports do not answer at those in linkLocal: the kernel does not
	// forward packets of the clients there. It is zero for IPv4.
	Every               netip.Addr
	loopback, linkLocal netip.Prefix
	// gateways has the addresses of gateways of OVN that are clients of services.
	gateways netip.Prefix
	// portUnreachable is the code of ICMP for a port on which nobody listens.
	portUnreachable uint8
}

var ipv4 = Family{
	table: nftables.TableFamilyIPv4, Number: unix.AF_INET, translate: unix.NFPROTO_IPV4, name: "IPv4",
	size: 4, source: 12, destination: 16, address: nftables.TypeIPAddr,
	Every: netip.IPv4Unspecified(), loopback: netip.MustParsePrefix("127.0.0.0/8"),
	gateways:        netip.MustParsePrefix("169.254.192.0/18"),
	portUnreachable: 3,
}

var ipv6 = Family{
	table: nftables.TableFamilyIPv6, Number: unix.AF_INET6, translate: unix.NFPROTO_IPV6, name: "IPv6",
	size: 16, source: 8, destination: 24, address: nftables.TypeIP6Addr,
	Every: netip.IPv6Unspecified(), loopback: netip.MustParsePrefix("::1/128"), linkLocal: netip.MustParsePrefix("fe80::/10"),
	gateways:        netip.MustParsePrefix("fd63:6f65:6272:1::/114"),
	portUnreachable: 4,
}

// IPv4 returns the family IPv4.
func IPv4() *Family { return &ipv4 }

// IPv6 returns the family IPv6.
func IPv6() *Family { return &ipv6 }

// Has reports whether an address is of the family.
func (f *Family) Has(a netip.Addr) bool { return a.BitLen() == int(8*f.size) }

// leadsTo reports whether a port can lead to an address.
func (f *Family) leadsTo(a netip.AddrPort) bool { return f.Has(a.Addr()) && a.Port() != 0 }

// The registers of 4 bytes that hold a key, and then the value that belongs to it. first has the number of a
// register of 16 bytes, which begins with the same 4 bytes. The address comes first.
const first = matches.Register

// behind returns the register that follows the address and n further registers.
func (f *Family) behind(n uint32) uint32 { return unix.NFT_REG32_00 + f.size/4 + n }

// other is a register behind every key.
const other = unix.NFT_REG32_10

// Table returns the table of the family.
func (f *Family) Table() *nftables.Table {
	return &nftables.Table{Family: f.table, Name: TableName}
}

// PortKey identifies a port.
type PortKey struct {
	Address  netip.Addr // Family.Every for a port on every address of the node
	Protocol byte
	Number   uint16
}

// bytes returns the begin of the keys of the port's elements.
func (p PortKey) bytes() string {
	return string(p.Address.AsSlice()) + string([]byte{p.Protocol, 0, 0, 0}) + portOf(p.Number)
}

// parse returns the port at the begin of a key.
func (f *Family) parse(key string) PortKey {
	n := int(f.size)
	address, _ := netip.AddrFromSlice([]byte(key[:n]))
	return PortKey{address, key[n], binary.BigEndian.Uint16([]byte(key[n+4:]))}
}

// portOf returns a port in the form of nftables, padded to a register.
func portOf(port uint16) string {
	return string(binary.BigEndian.AppendUint16(nil, port)) + "\x00\x00"
}

func addressOf(a netip.AddrPort) string { return string(a.Addr().AsSlice()) + portOf(a.Port()) }

// addressIn returns the address and the port of a text of addressOf.
func addressIn(text string) netip.AddrPort {
	n := len(text) - 4
	address, _ := netip.AddrFromSlice([]byte(text[:n]))
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16([]byte(text[n:])))
}

// numberOf returns a number in the form of nftables: in the order of the processor.
func numberOf(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

// slotOf returns the number at the end of the key of an endpoint.
func (f *Family) slotOf(key string) uint32 {
	return binary.NativeEndian.Uint32([]byte(key[len(key)-4:]))
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// KeyOf returns the key of a port at an address.
func (f *Family) KeyOf(address netip.Addr, protocol string, number uint16) (PortKey, error) {
	at := PortKey{address, protocols[protocol], number}
	if !f.Has(address) || at.Protocol == 0 || number == 0 {
		return PortKey{}, fmt.Errorf("the address, the protocol or the port is invalid")
	}
	return at, nil
}
