package conntrack

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Tuple names connections by a part of their addresses and ports, in one direction. A part that is zero matches all. The
// kernel compares the other connections, and does not send them. Kernels before 5.8 send all.
type Tuple struct {
	Answers          bool // of Connection.Answers; otherwise of Connection.Sent
	From, To         netip.Addr
	Protocol         uint8
	FromPort, ToPort uint16 // only with a protocol
}

// maxTuples is the maximum number of tuples that are asked for: the kernel scans all connections for each of them.
const maxTuples = 4

// few returns at most maxTuples that name all connections of tuples, and perhaps others.
func few(tuples []Tuple) []Tuple {
	if len(tuples) <= maxTuples {
		return tuples
	}
	all := Tuple{Protocol: tuples[0].Protocol}
	if slices.ContainsFunc(tuples, func(t Tuple) bool { return t.Protocol != all.Protocol }) {
		all.Protocol = 0
	}
	return []Tuple{all}
}

// The attributes by which the kernel selects (CTA_FILTER), and the bits for the parts that count.
const (
	attributeZone   = 18 // CTA_ZONE
	attributeFilter = 25 // CTA_FILTER

	bySource      = 1 << 0
	byDestination = 1 << 1
	byProtocol    = 1 << 3
	bySourcePort  = 1 << 4
	byPort        = 1 << 5
)

// names reports whether a tuple names a connection, in any zone.
func (t Tuple) names(c *Connection) bool {
	of := c.Sent
	if t.Answers {
		of = c.Answers
	}
	return (!t.From.IsValid() || of.From.Addr() == t.From) && (!t.To.IsValid() || of.To.Addr() == t.To) &&
		(t.Protocol == 0 || c.Protocol == t.Protocol) && (t.FromPort == 0 || of.From.Port() == t.FromPort) && (t.ToPort == 0 || of.To.Port() == t.ToPort)
}

// request returns the attributes that select connections in no zone, as others belong to the switch.
func (t Tuple) request(family int) (all []nl.NetlinkRequestData) {
	var bits uint32
	addresses, ports := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil), nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	add := func(is bool, bit uint32, to *nl.RtAttr, attribute int, value []byte) {
		if is {
			bits |= bit
			to.AddRtAttr(attribute, value)
		}
	}
	source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if family == unix.AF_INET6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	add(t.From.IsValid(), bySource, addresses, source, t.From.AsSlice())
	add(t.To.IsValid(), byDestination, addresses, destination, t.To.AsSlice())
	add(t.Protocol != 0, byProtocol, ports, nl.CTA_PROTO_NUM, []byte{t.Protocol})
	add(t.FromPort != 0, bySourcePort, ports, nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.FromPort))
	add(t.ToPort != 0, byPort, ports, nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.ToPort))

	direction := 1 // CTA_TUPLE_ORIG and CTA_FILTER_ORIG_FLAGS
	if t.Answers {
		direction = 2
	}
	of := nl.NewRtAttr(unix.NLA_F_NESTED|direction, nil)
	if bits&(bySource|byDestination) != 0 {
		of.AddChild(addresses)
	}
	if bits&byProtocol != 0 {
		of.AddChild(ports)
	}
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|attributeFilter, nil)
	filter.AddRtAttr(direction, nl.Uint32Attr(bits))
	return []nl.NetlinkRequestData{of, filter, nl.NewRtAttr(attributeZone, nl.BEUint16Attr(0))}
}
