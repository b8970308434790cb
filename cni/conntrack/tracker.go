package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// tracker reads and removes the connections of a network namespace. request returns the attributes that select those that
// a tuple names.
type tracker struct {
	family  int // unix.AF_INET
	socket  *nl.NetlinkSocket
	request func(Tuple, int) []nl.NetlinkRequestData
}

// open opens the connections of a family in a network namespace.
func open(ns netns.NsHandle, family int) (*tracker, error) {
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open connection tracking: %w", err)
	}
	return &tracker{family, socket, Tuple.request}, nil
}

func (k *tracker) close() { k.socket.Close() }

// list lists the connections that one of the tuples names, without those in a zone, which belong to the switch: kernels
// before 6.8 do not select by the zone. A kernel that does not select at all sends others too, and then the first answer has
// the connections of all tuples.
func (k *tracker) list(tuples []Tuple) (all []Connection, err error) {
	for _, t := range few(tuples) {
		some, err := links.Dump(func() (found []Connection, err error) {
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
		some = slices.DeleteFunc(some, func(c Connection) bool { return c.zone != 0 })
		if slices.ContainsFunc(some, func(c Connection) bool { return !t.names(&c) }) {
			return some, nil
		}
		all = append(all, some...)
	}
	return all, nil
}

// each calls a function for connections that a tuple names, and perhaps for others, until it returns false; not for those in a zone. The attributes of a connection are
// valid until the function returns. A list that the kernel interrupts is not repeated.
func (k *tracker) each(t Tuple, f func(Connection) bool) error {
	err := k.prepare(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, k.request(t, k.family)...).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		c, ok := readConnection(m[nl.SizeofNfgenmsg:])
		return !ok || c.zone != 0 || f(c)
	})
	if errors.Is(err, nl.ErrDumpInterrupted) {
		return nil
	}
	return err
}

// remove removes a connection, unless it is gone.
func (k *tracker) remove(c *Connection) error {
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
	request.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(k.family), Version: nl.NFNETLINK_V0})
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
func readConnection(attributes []byte) (c Connection, ok bool) {
	all, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return c, false
	}
	c.raw = attributes
	for _, a := range all {
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case nl.CTA_TUPLE_ORIG:
			c.Sent, c.Protocol = readTuple(a.Value)
		case nl.CTA_TUPLE_REPLY:
			c.Answers, _ = readTuple(a.Value)
		case attributeZone:
			if len(a.Value) == 2 {
				c.zone = binary.BigEndian.Uint16(a.Value)
			}
		}
	}
	return c, c.Sent.valid() && c.Answers.valid()
}

func readTuple(value []byte) (e Ends, protocol uint8) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	for _, a := range nested(value) {
		for _, part := range nested(a.Value) {
			switch group, kind := a.Attr.Type&nl.NLA_TYPE_MASK, part.Attr.Type&nl.NLA_TYPE_MASK; {
			case group == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC):
				from, _ = netip.AddrFromSlice(part.Value)
			case group == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST):
				to, _ = netip.AddrFromSlice(part.Value)
			case group != nl.CTA_TUPLE_PROTO:
			case kind == nl.CTA_PROTO_NUM && len(part.Value) == 1:
				protocol = part.Value[0]
			case kind == nl.CTA_PROTO_SRC_PORT && len(part.Value) == 2:
				fromPort = binary.BigEndian.Uint16(part.Value)
			case kind == nl.CTA_PROTO_DST_PORT && len(part.Value) == 2:
				toPort = binary.BigEndian.Uint16(part.Value)
			}
		}
	}
	return Ends{netip.AddrPortFrom(from.Unmap(), fromPort), netip.AddrPortFrom(to.Unmap(), toPort)}, protocol
}

// nested returns the attributes in another one; none if it cannot be read.
func nested(value []byte) []syscall.NetlinkRouteAttr {
	all, err := nl.ParseRouteAttr(value)
	if err != nil {
		return nil
	}
	return all
}
