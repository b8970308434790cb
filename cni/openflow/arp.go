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
	arpCookie = 0xc0eb41d9e0000044
	// arpGroup is the group of KeepARP. Netvirt's groups have small numbers.
	arpGroup = 0xc0eb0044
)

// KeepARP adds flows by which ARP packets take the way of Netvirt's flows, without a copy to OpenDaylight. OpenDaylight
// would end the delivery of all its notifications if a packet came from a port that it does not know yet.
//
// A request goes to a group, which gives each of its tables a copy. The answer of table 81 comes before the packets to tunnels, as with Netvirt's
// flows: Open vSwitch 3.1 would put the answer into the tunnel header of the packet before it. OpenDaylight reads flows and groups of the switch
// for its statistics, and gives up at an action that it does not know, such as clone.
func (c *Conn) KeepARP(ctx context.Context) error {
	request, answer := Match{ARP: arpRequest}, Match{ARP: arpAnswer}
	var failures []error
	for _, wanted := range []struct {
		match   Match
		changes []change
	}{
		{request, []change{
			{typeGroupMod, changeGroup(deleteGroup, arpGroup)}, // the switch removes the flow of a group too
			{typeGroupMod, changeGroup(addGroup, arpGroup, resubmit(answerTable), resubmit(elanTable))},
			{typeFlowMod, arpFlow(request, toGroup(arpGroup))},
		}},
		{answer, []change{{typeFlowMod, arpFlow(answer, resubmit(elanTable))}}},
	} {
		has, err := c.hasARP(ctx, wanted.match)
		if err == nil && !has {
			err = c.addARP(ctx, wanted.match, wanted.changes)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// change is a message that changes the switch.
type change struct {
	kind byte
	body []byte
}

// addARP changes the switch, and fails if the switch does not have the flow with a match afterwards.
func (c *Conn) addARP(ctx context.Context, m Match, changes []change) error {
	for _, one := range changes {
		c.xid++
		if err := c.do(ctx, func() error { return c.send(one.kind, c.xid, one.body) }); err != nil {
			return fmt.Errorf("add flow for ARP packets at %s: %w", c.socket, err)
		}
	}
	has, err := c.hasARP(ctx, m)
	if err == nil && !has {
		err = fmt.Errorf("add flow for ARP packets at %s: the switch refuses it", c.socket)
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

// toGroup returns the action that sends a packet to a group.
func toGroup(number uint32) []byte {
	text := binary.BigEndian.AppendUint16(nil, actionGroup)
	return binary.BigEndian.AppendUint32(append(text, 0, headerSize), number)
}

// Commands of changeGroup.
const addGroup, deleteGroup = 0, 2

// changeGroup returns the message that changes a group, after its header. Each bucket of the group gets a copy of a packet.
func changeGroup(command uint16, number uint32, buckets ...[]byte) []byte {
	const fixed, anyPort, anyGroup = 16, 0xffffffff, 0xffffffff
	text := append(binary.BigEndian.AppendUint16(nil, command), 0, 0) // type: all
	text = binary.BigEndian.AppendUint32(text, number)
	for _, actions := range buckets {
		text = binary.BigEndian.AppendUint16(text, uint16(fixed+len(actions)))
		text = append(text, 0, 0) // weight
		text = binary.BigEndian.AppendUint32(text, anyPort)
		text = binary.BigEndian.AppendUint32(text, anyGroup)
		text = append(append(text, 0, 0, 0, 0), actions...)
	}
	return text
}

// ofNicira returns an action of Open vSwitch.
func ofNicira(subtype uint16, body []byte) []byte {
	text := binary.BigEndian.AppendUint16(nil, actionExperimenter)
	text = binary.BigEndian.AppendUint16(text, uint16(10+len(body)))
	text = binary.BigEndian.AppendUint32(text, vendorNicira)
	return append(binary.BigEndian.AppendUint16(text, subtype), body...)
}
