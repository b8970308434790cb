package openflow

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("a part of the answer is too short")

// split calls each with each of consecutive structures that begin with their sizes.
func split(all []byte, each func([]byte) error) error {
	for len(all) > 0 {
		if len(all) < 2 {
			return errShort
		}
		size := int(binary.BigEndian.Uint16(all))
		if size < 4 || size > len(all) {
			return errShort
		}
		if err := each(all[:size]); err != nil {
			return err
		}
		all = all[size:]
	}
	return nil
}

// splitTyped is split for structures that begin with a type and their size.
func splitTyped(all []byte, each func(kind uint16, one []byte) error) error {
	for len(all) > 0 {
		if len(all) < 4 {
			return errShort
		}
		size := int(binary.BigEndian.Uint16(all[2:]))
		if size < 4 || size > len(all) {
			return errShort
		}
		if err := each(binary.BigEndian.Uint16(all), all[:size]); err != nil {
			return err
		}
		all = all[size:]
	}
	return nil
}

// Types of instructions and of actions.
const (
	instructionWriteMetadata, instructionWriteActions, instructionApplyActions = 2, 3, 4

	actionOutput, actionGroup, actionSetField, actionExperimenter = 0, 22, 25, 0xffff
)

// readFlow reads an entry of a flow multipart reply: 48 bytes, the match, and instructions.
func readFlow(entry []byte) (f Flow, err error) {
	const fixed = 48
	if len(entry) < fixed+4 {
		return f, errShort
	}
	match := entry[fixed:]
	size := int(binary.BigEndian.Uint16(match[2:]))
	if size < 4 || padded(size) > len(match) {
		return f, errShort
	}
	if err := f.readMatch(match[4:size]); err != nil {
		return f, err
	}
	return f, splitTyped(match[padded(size):], f.readInstruction)
}

func (f *Flow) readMatch(fields []byte) error {
	for len(fields) > 0 {
		if len(fields) < 4 || len(fields) < 4+int(fields[3]) {
			return errShort
		}
		value := fields[4 : 4+int(fields[3])]
		if binary.BigEndian.Uint16(fields) == oxmBasic && fields[2]>>1 == oxmInPort {
			if len(value) != 4 {
				return errShort
			}
			f.InPort = binary.BigEndian.Uint32(value)
		}
		if binary.BigEndian.Uint16(fields) == oxmBasic && fields[2]>>1 == oxmMetadata {
			switch masked := fields[2]&1 != 0; {
			case masked && len(value) == 16:
				f.Metadata = Bits{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}
			case !masked && len(value) == 8:
				f.Metadata = Bits{binary.BigEndian.Uint64(value), ^uint64(0)}
			default:
				return errShort
			}
		}
		fields = fields[4+len(value):]
	}
	return nil
}

func (f *Flow) readInstruction(kind uint16, one []byte) error {
	switch kind {
	case instructionWriteMetadata:
		if len(one) < 24 {
			return errShort
		}
		f.Writes = Bits{binary.BigEndian.Uint64(one[8:]), binary.BigEndian.Uint64(one[16:])}
	case instructionWriteActions, instructionApplyActions:
		if len(one) < 8 {
			return errShort
		}
		return f.read(one[8:])
	}
	return nil
}

// The action of Open vSwitch that loads a value to a register: its vendor and subtype. A register is field REG0 and following
// of class 1 of NXM, with four bytes.
const (
	vendorNicira  = 0x2320
	subtypeLoad   = 7
	loadSize      = 24
	wholeRegister = 31 // offset 0, 32 bits
)

// read adds actions.
func (a *Actions) read(actions []byte) error {
	return splitTyped(actions, func(kind uint16, one []byte) error {
		switch {
		case kind == actionOutput && len(one) >= 8:
			a.Outputs = append(a.Outputs, binary.BigEndian.Uint32(one[4:]))
		case kind == actionGroup && len(one) >= 8:
			a.Groups = append(a.Groups, binary.BigEndian.Uint32(one[4:]))
		case kind == actionSetField && len(one) >= 16 && binary.BigEndian.Uint32(one[4:]) == oxmBasic<<16|oxmTunnelID<<9|8:
			a.Tunnels = append(a.Tunnels, binary.BigEndian.Uint64(one[8:]))
		case kind == actionExperimenter && len(one) == loadSize && binary.BigEndian.Uint32(one[4:]) == vendorNicira && binary.BigEndian.Uint16(one[8:]) == subtypeLoad:
			to := binary.BigEndian.Uint32(one[12:])
			if class, field := to>>16, to>>9&0x7f; class == nxmRegisters && binary.BigEndian.Uint16(one[10:]) == wholeRegister {
				a.Registers = append(a.Registers, Load{int(field), binary.BigEndian.Uint64(one[16:])})
			}
		}
		return nil
	})
}
