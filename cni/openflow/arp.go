package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// Tables of Netvirt for ARP packets. Table 43 sends a copy of each to OpenDaylight. Table 48 leads requests to all ports of the
// elan-instance, and answers to one. Table 81 answers requests for gateways.
const arpTable, elanTable, answerTable = 43, 48, 81

const (
	arpRequest, arpAnswer = 1, 2

	// arpPriority is above that of Netvirt's flows.
	arpPriority = 200
	// arpCookie marks the flows of KeepARP.
	arpCookie = 0xc0eb41d9e0000043
)

// KeepARP adds flows by which ARP packets take the way of Netvirt's flows, without a copy to OpenDaylight. OpenDaylight
// would end the delivery of all its notifications if a packet came from a port that it does not know yet.
//
// The answer of table 81 comes before the packets to tunnels, as with Netvirt's flows: Open vSwitch 3.1 would put the answer into the tunnel
// header of the packet before it.
func (c *Conn) KeepARP(ctx context.Context) error {
	wanted := []struct {
		operation uint16
		actions   []byte
	}{
		{arpRequest, append(clone(resubmit(answerTable)), resubmit(elanTable)...)},
		{arpAnswer, resubmit(elanTable)},
	}
	for _, one := range wanted {
		m := Match{ARP: one.operation}
		has, err := c.hasARP(ctx, m)
		if err != nil {
			return err
		}
		if has {
			continue
		}
		if err := c.addARP(ctx, m, one.actions); err != nil {
			return fmt.Errorf("add flow for ARP packets at %s: %w", c.socket, err)
		}
	}
	return nil
}

// addARP adds a flow, and fails if the switch does not have it afterwards.
func (c *Conn) addARP(ctx context.Context, m Match, actions []byte) error {
	c.xid++
	if err := c.do(ctx, func() error { return c.send(typeFlowMod, c.xid, arpFlow(m, actions)) }); err != nil {
		return err
	}
	has, err := c.hasARP(ctx, m)
	if err == nil && !has {
		err = errors.New("the switch refuses it")
	}
	return err
}

// hasARP reports whether the switch has the flow of KeepARP with a match.
func (c *Conn) hasARP(ctx context.Context, m Match) (has bool, err error) {
	err = c.eachFlow(ctx, arpTable, m, func(entry []byte) error {
		const cookie, fixed = 24, 48
		if len(entry) < fixed {
			return errShort
		}
		has = has || binary.BigEndian.Uint64(entry[cookie:]) == arpCookie
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the flows of table %d at %s: %w", arpTable, c.socket, err)
	}
	return has, nil
}

// arpFlow returns the message that adds a flow, after its header.
func arpFlow(m Match, actions []byte) []byte {
	const none = 0xffffffff
	text := binary.BigEndian.AppendUint64(nil, arpCookie)
	text = append(text, make([]byte, 8)...)      // mask of the cookie
	text = append(text, arpTable, 0, 0, 0, 0, 0) // command: add; no timeouts
	text = binary.BigEndian.AppendUint16(text, arpPriority)
	for _, unused := range []uint32{none, none, none} { // buffer, port, group
		text = binary.BigEndian.AppendUint32(text, unused)
	}
	text = append(text, 0, 0, 0, 0) // flags, padding
	text = append(text, m.encode()...)
	text = binary.BigEndian.AppendUint16(text, instructionApplyActions)
	text = binary.BigEndian.AppendUint16(text, uint16(headerSize+len(actions)))
	return append(append(text, 0, 0, 0, 0), actions...)
}

// resubmit returns the action of Open vSwitch that looks a packet up in a table.
func resubmit(table byte) []byte {
	const subtype, inPort = 14, 0xfff8
	body := binary.BigEndian.AppendUint16(nil, inPort)
	return ofNicira(subtype, append(body, table, 0, 0, 0))
}

// clone returns the action of Open vSwitch that does actions to a copy of a packet.
func clone(actions []byte) []byte {
	const subtype = 42
	return ofNicira(subtype, append(make([]byte, 6), actions...))
}

// ofNicira returns an action of Open vSwitch.
func ofNicira(subtype uint16, body []byte) []byte {
	text := binary.BigEndian.AppendUint16(nil, actionExperimenter)
	text = binary.BigEndian.AppendUint16(text, uint16(10+len(body)))
	text = binary.BigEndian.AppendUint32(text, vendorNicira)
	return append(binary.BigEndian.AppendUint16(text, subtype), body...)
}
