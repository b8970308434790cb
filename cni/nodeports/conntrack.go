package nodeports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// tuple names connections by a part of their addresses and ports, in one direction. A part that is zero matches all. The
// kernel compares the other connections, and does not send them. Kernels before 5.8 send all.
type tuple struct {
	reply            bool // of the answers, after translation; otherwise of what the client sends
	source, to       netip.Addr
	protocol         uint8
	sourcePort, port uint16 // only with a protocol
}

// maxTuples is the maximum number of tuples in one list: the kernel scans all connections for each of them.
const maxTuples = 4

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
func (t tuple) names(c *netlink.ConntrackFlow) bool {
	of := c.Forward
	if t.reply {
		of = c.Reverse
	}
	return (!t.source.IsValid() || of.SrcIP.Equal(t.source.AsSlice())) && (!t.to.IsValid() || of.DstIP.Equal(t.to.AsSlice())) &&
		(t.protocol == 0 || of.Protocol == t.protocol) && (t.sourcePort == 0 || of.SrcPort == t.sourcePort) && (t.port == 0 || of.DstPort == t.port)
}

// request returns the attributes that select connections in no zone, as others belong to the switch.
func (t tuple) request(f *family) (all []nl.NetlinkRequestData) {
	var bits uint32
	addresses, ports := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil), nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	add := func(is bool, bit uint32, to *nl.RtAttr, attribute int, value []byte) {
		if is {
			bits |= bit
			to.AddRtAttr(attribute, value)
		}
	}
	source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if f.number == unix.AF_INET6 {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	add(t.source.IsValid(), bySource, addresses, source, t.source.AsSlice())
	add(t.to.IsValid(), byDestination, addresses, destination, t.to.AsSlice())
	add(t.protocol != 0, byProtocol, ports, nl.CTA_PROTO_NUM, []byte{t.protocol})
	add(t.sourcePort != 0, bySourcePort, ports, nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.sourcePort))
	add(t.port != 0, byPort, ports, nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.port))

	direction := 1 // CTA_TUPLE_ORIG and CTA_FILTER_ORIG_FLAGS
	if t.reply {
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

// connection is an entry of the kernel.
type connection struct {
	netlink.ConntrackFlow
	raw []byte // its attributes
}

// tracker reads and removes the connections of a network namespace. request returns the attributes that select those that
// a tuple names.
type tracker struct {
	family  *family
	socket  *nl.NetlinkSocket
	request func(tuple, *family) []nl.NetlinkRequestData
}

func (f *family) tracker(ns netns.NsHandle) (*tracker, error) {
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open connection tracking: %w", err)
	}
	return &tracker{f, socket, tuple.request}, nil
}

func (k *tracker) close() { k.socket.Close() }

// list lists the connections that one of the tuples names, without those in a zone, which belong to the switch: kernels
// before 6.8 do not select by the zone. A kernel that does not select at all sends others too, and then the first answer has
// the connections of all tuples.
func (k *tracker) list(tuples []tuple) (all []connection, err error) {
	if len(tuples) > maxTuples {
		tuples = []tuple{{}}
	}
	for _, t := range tuples {
		some, err := links.Dump(func() (found []connection, err error) {
			answers, err := k.ask(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, k.request(t, k.family)...)
			for _, a := range answers {
				if c, ok := readConnection(a); ok {
					found = append(found, c)
				}
			}
			return found, err
		})
		if err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
		some = slices.DeleteFunc(some, func(c connection) bool { return c.Zone != 0 })
		if slices.ContainsFunc(some, func(c connection) bool { return !t.names(&c.ConntrackFlow) }) {
			return some, nil
		}
		all = append(all, some...)
	}
	return all, nil
}

// each calls a function for connections that a tuple names, and perhaps for others, until it returns false. The attributes of a connection are
// valid until the function returns. A list that the kernel interrupts is not repeated.
func (k *tracker) each(t tuple, f func(connection) bool) error {
	err := k.prepare(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, k.request(t, k.family)...).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		c, ok := readConnection(m[nl.SizeofNfgenmsg:])
		return !ok || f(c)
	})
	if errors.Is(err, nl.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// remove removes a connection, unless it is gone.
func (k *tracker) remove(c *connection) error {
	_, err := k.ask(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, raw(c.raw))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove a connection: %w", err)
	}
	return nil
}

// ask sends a request about connections, and returns the attributes of the answers.
func (k *tracker) ask(message, flags int, attributes ...nl.NetlinkRequestData) ([][]byte, error) {
	answers, err := k.prepare(message, flags, attributes...).Execute(unix.NETLINK_NETFILTER, 0)
	for i := range answers {
		answers[i] = answers[i][nl.SizeofNfgenmsg:]
	}
	return answers, err
}

// prepare returns a request about connections.
func (k *tracker) prepare(message, flags int, attributes ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|message, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: k.socket}}
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(k.family.number), Version: nl.NFNETLINK_V0})
	for _, a := range attributes {
		request.AddData(a)
	}
	return request
}

// raw are attributes as the kernel has sent them.
type raw []byte

// Len and Serialize implement nl.NetlinkRequestData.
func (r raw) Len() int          { return len(r) }
func (r raw) Serialize() []byte { return r }

// readConnection reads what identifies a connection.
func readConnection(attributes []byte) (c connection, ok bool) {
	all, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return c, false
	}
	c.raw = attributes
	for _, a := range all {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case nl.CTA_TUPLE_ORIG:
			c.Forward = readTuple(a.Value)
		case nl.CTA_TUPLE_REPLY:
			c.Reverse = readTuple(a.Value)
		case attributeZone:
			if len(a.Value) == 2 {
				c.Zone = binary.BigEndian.Uint16(a.Value)
			}
		}
	}
	return c, c.Forward.SrcIP != nil && c.Reverse.SrcIP != nil
}

func readTuple(value []byte) (t netlink.IPTuple) {
	for _, a := range nested(value) {
		for _, part := range nested(a.Value) {
			switch group, kind := a.Attr.Type&nl.NLA_TYPE_MASK, part.Attr.Type&nl.NLA_TYPE_MASK; {
			case group == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC):
				t.SrcIP = part.Value
			case group == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST):
				t.DstIP = part.Value
			case group != nl.CTA_TUPLE_PROTO:
			case kind == nl.CTA_PROTO_NUM && len(part.Value) == 1:
				t.Protocol = part.Value[0]
			case kind == nl.CTA_PROTO_SRC_PORT && len(part.Value) == 2:
				t.SrcPort = binary.BigEndian.Uint16(part.Value)
			case kind == nl.CTA_PROTO_DST_PORT && len(part.Value) == 2:
				t.DstPort = binary.BigEndian.Uint16(part.Value)
			}
		}
	}
	return t
}

// nested returns the attributes in another one; none if it cannot be read.
func nested(value []byte) []syscall.NetlinkRouteAttr {
	all, err := nl.ParseRouteAttr(value)
	if err != nil {
		return nil
	}
	return all
}
