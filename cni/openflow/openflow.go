// Package openflow reads flows and groups of a bridge of Open vSwitch, with OpenFlow 1.3 over the bridge's management socket. From them it
// finds out whether Netvirt's flows lead to a port, and since when no flow has come. It adds the flows that keep ARP packets from OpenDaylight.
package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"time"
)

// OpenFlow 1.3: the version, and types of messages.
const (
	version13 = 4

	typeHello, typeError, typeEchoRequest, typeEchoReply = 0, 1, 2, 3
	typeFlowMod, typeGroupMod                            = 14, 15
	typeMultipartRequest, typeMultipartReply             = 18, 19
)

// Types of multipart messages.
const multipartFlow, multipartGroup = 1, 7

const headerSize = 8

// maxMessages bounds the messages that are read for one answer.
const maxMessages = 1000

// Conn is a connection to a bridge. It is for one goroutine.
type Conn struct {
	socket string
	conn   net.Conn
	xid    uint32 // of the last request
}

// Dial connects to the management socket of a bridge, BRIDGE.mgmt in the run directory of Open vSwitch. The bridge must allow
// OpenFlow 1.3.
func Dial(ctx context.Context, socket string) (*Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, conn: conn}
	if err := c.do(ctx, c.hello); err != nil {
		c.Close()
		return nil, fmt.Errorf("speak OpenFlow 1.3 at %s: %w", socket, err)
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// do runs a function that uses the connection. The end of ctx ends the connection.
func (c *Conn) do(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	if err := f(); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

func (c *Conn) hello() error {
	if err := c.send(typeHello, 0, nil); err != nil {
		return err
	}
	kind, _, _, err := c.receive()
	if err == nil && kind != typeHello {
		err = fmt.Errorf("the switch begins with message %d, want hello", kind)
	}
	return err
}

func (c *Conn) send(kind byte, xid uint32, body []byte) error {
	text := binary.BigEndian.AppendUint16([]byte{version13, kind}, uint16(headerSize+len(body)))
	text = binary.BigEndian.AppendUint32(text, xid)
	_, err := c.conn.Write(append(text, body...))
	return err
}

func (c *Conn) receive() (kind byte, xid uint32, body []byte, err error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(c.conn, header); err != nil {
		return 0, 0, nil, err
	}
	size := binary.BigEndian.Uint16(header[2:])
	if size < headerSize {
		return 0, 0, nil, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size-headerSize)
	_, err = io.ReadFull(c.conn, body)
	return header[1], binary.BigEndian.Uint32(header[4:]), body, err
}

// ask sends a multipart request, and calls each with each part of the answer.
func (c *Conn) ask(kind uint16, request []byte, each func([]byte) error) error {
	c.xid++
	body := append(binary.BigEndian.AppendUint16(nil, kind), make([]byte, 6)...)
	if err := c.send(typeMultipartRequest, c.xid, append(body, request...)); err != nil {
		return err
	}
	for range maxMessages {
		kind, xid, body, err := c.receive()
		switch {
		case err != nil:
			return err
		case kind == typeEchoRequest:
			err = c.send(typeEchoReply, xid, body)
		case xid != c.xid:
		case kind == typeError:
			return fmt.Errorf("the switch refuses the request: error %x", body)
		case kind == typeMultipartReply && len(body) >= headerSize:
			if err = each(body[headerSize:]); err == nil && binary.BigEndian.Uint16(body[2:])&1 == 0 {
				return nil // no more parts
			}
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the answer does not end")
}

// Match selects flows that match these fields, and possibly more. A zero field selects all.
type Match struct {
	InPort              uint32
	Metadata            Bits
	Source, Destination net.HardwareAddr
	IPv4                netip.Addr // destination
	ARP                 uint16     // operation
	Register6           Bits       // of Open vSwitch
}

// Fields of a match: their numbers in the basic class of OXM.
const (
	oxmBasic = 0x8000

	oxmInPort, oxmMetadata, oxmEthDst, oxmEthSrc, oxmEthType, oxmIPv4Dst = 0, 2, 3, 4, 5, 12
	oxmARPOperation, oxmTunnelID                                         = 21, 38
)

// Register 6 in a match: the class of registers in NXM, and its number there.
const nxmRegisters, nxmRegister6 = 1, 6

const etherTypeIPv4, etherTypeARP = 0x0800, 0x0806

// encode returns the match as in a message, padded.
func (m Match) encode() []byte {
	var fields []byte
	add := func(field byte, value []byte) {
		fields = binary.BigEndian.AppendUint16(fields, oxmBasic)
		fields = append(append(fields, field<<1, byte(len(value))), value...)
	}
	if m.InPort != 0 {
		add(oxmInPort, binary.BigEndian.AppendUint32(nil, m.InPort))
	}
	if m.Metadata.Mask != 0 {
		fields = binary.BigEndian.AppendUint16(fields, oxmBasic)
		fields = append(fields, oxmMetadata<<1|1, 16)
		fields = binary.BigEndian.AppendUint64(fields, m.Metadata.Value)
		fields = binary.BigEndian.AppendUint64(fields, m.Metadata.Mask)
	}
	if m.Destination != nil {
		add(oxmEthDst, m.Destination)
	}
	if m.Source != nil {
		add(oxmEthSrc, m.Source)
	}
	if m.IPv4.IsValid() {
		add(oxmEthType, binary.BigEndian.AppendUint16(nil, etherTypeIPv4))
		add(oxmIPv4Dst, m.IPv4.AsSlice())
	}
	if m.ARP != 0 {
		add(oxmEthType, binary.BigEndian.AppendUint16(nil, etherTypeARP))
		add(oxmARPOperation, binary.BigEndian.AppendUint16(nil, m.ARP))
	}
	if m.Register6.Mask != 0 {
		fields = binary.BigEndian.AppendUint16(fields, nxmRegisters)
		fields = append(fields, nxmRegister6<<1|1, 8)
		fields = binary.BigEndian.AppendUint32(fields, uint32(m.Register6.Value))
		fields = binary.BigEndian.AppendUint32(fields, uint32(m.Register6.Mask))
	}
	size := 4 + len(fields)
	text := binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(size))
	return append(append(text, fields...), make([]byte, padded(size)-size)...)
}

// padded rounds up to a multiple of eight bytes.
func padded(size int) int { return (size + 7) / 8 * 8 }

// Flow is a flow of a table.
type Flow struct {
	InPort   uint32 // that it matches; 0 for any
	Metadata Bits   // that it matches
	Writes   Bits   // that it writes to the metadata
	Actions
}

// Bits is a value of which the mask tells the significant bits.
type Bits struct{ Value, Mask uint64 }

// Actions is what a flow or a group does, as far as the package knows it.
type Actions struct {
	Outputs   []uint32 // ports
	Groups    []uint32
	Registers []Load
	Tunnels   []uint64 // tunnel IDs
}

// Load is a value that goes to a whole register of Open vSwitch.
type Load struct {
	Register int
	Value    uint64
}

// Flows returns the flows of a table.
func (c *Conn) Flows(ctx context.Context, table byte, m Match) (all []Flow, err error) {
	err = c.eachFlow(ctx, table, m, func(entry []byte) error {
		f, err := readFlow(entry)
		all = append(all, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the flows of table %d at %s: %w", table, c.socket, err)
	}
	return all, nil
}

// allTables stands for all tables in a request.
const allTables = 0xff

// Age returns for how long the switch has got no flow: the age of its youngest one. A flow that is written again as it is counts as new.
// It leaves out the flows of KeepARP, and flows with a timeout, because the switch can learn them. Flows of table 0 count only if there are no others: OpenDaylight
// writes the flow of a tunnel again each time when the tunnel is up, and the flows of a port are also in other tables. Without flows the
// age is the longest duration.
func (c *Conn) Age(ctx context.Context) (time.Duration, error) {
	age, ofPorts := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	err := c.eachFlow(ctx, allTables, Match{}, func(entry []byte) error {
		const table, seconds, idle, hard, cookie, fixed = 2, 4, 14, 16, 24, 48
		if len(entry) < fixed {
			return errShort
		}
		if binary.BigEndian.Uint64(entry[cookie:]) == arpCookie {
			return nil
		}
		if binary.BigEndian.Uint16(entry[idle:]) == 0 && binary.BigEndian.Uint16(entry[hard:]) == 0 {
			youngest := &age
			if entry[table] == 0 {
				youngest = &ofPorts
			}
			*youngest = min(*youngest, time.Duration(binary.BigEndian.Uint32(entry[seconds:]))*time.Second)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the flows at %s: %w", c.socket, err)
	}
	if age == math.MaxInt64 {
		age = ofPorts
	}
	return age, nil
}

// eachFlow calls each with each entry of the answer to a request for flows.
func (c *Conn) eachFlow(ctx context.Context, table byte, m Match, each func(entry []byte) error) error {
	const anyPort, anyGroup = 0xffffffff, 0xffffffff
	request := binary.BigEndian.AppendUint32([]byte{table, 0, 0, 0}, anyPort)
	request = binary.BigEndian.AppendUint32(request, anyGroup)
	request = append(request, make([]byte, 4+8+8)...) // padding, cookie, and the cookie's mask
	return c.do(ctx, func() error {
		return c.ask(multipartFlow, append(request, m.encode()...), func(part []byte) error { return split(part, each) })
	})
}

// Groups returns what the buckets of each group do.
func (c *Conn) Groups(ctx context.Context) (map[uint32]Actions, error) {
	groups := map[uint32]Actions{}
	err := c.do(ctx, func() error {
		return c.ask(multipartGroup, nil, func(part []byte) error {
			return split(part, func(group []byte) error {
				const fixed, ofBucket = 8, 16
				if len(group) < fixed {
					return errShort
				}
				var a Actions
				err := split(group[fixed:], func(bucket []byte) error {
					if len(bucket) < ofBucket {
						return errShort
					}
					return a.read(bucket[ofBucket:])
				})
				groups[binary.BigEndian.Uint32(group[4:])] = a
				return err
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the groups at %s: %w", c.socket, err)
	}
	return groups, nil
}
