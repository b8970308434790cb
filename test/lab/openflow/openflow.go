// Package openflow is an idle OpenFlow controller, as far as a switch sees it.
package openflow

import (
	"encoding/binary"
	"io"
	"net"
)

// OpenFlow 1.3: the version, and types of messages.
const (
	version13                     = 4
	hello, echoRequest, echoReply = 0, 2, 3
	roleRequest                   = 24
)

// Role is the role of a controller at a switch. Without a request it is that of an equal, which may change flows.
type Role uint32

// The other roles: of the only controller that may change flows, and of one that only reads.
const (
	Master Role = 2
	Slave  Role = 3
)

// Take asks the switch for a role. Speak reads the answer.
func Take(conn net.Conn, role Role) error {
	request := binary.BigEndian.AppendUint16([]byte{version13, roleRequest}, 24)
	request = binary.BigEndian.AppendUint32(append(request, 0, 0, 0, 1), uint32(role))
	_, err := conn.Write(append(request, make([]byte, 12)...)) // padding, and the first generation
	return err
}

// Speak sends a hello, and answers echo requests until the connection ends.
func Speak(conn net.Conn) {
	say := func(kind byte, body []byte, transaction []byte) {
		text := binary.BigEndian.AppendUint16([]byte{version13, kind}, uint16(8+len(body)))
		_, _ = conn.Write(append(append(text, transaction...), body...))
	}
	say(hello, nil, make([]byte, 4))
	for header := make([]byte, 8); ; {
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint16(header[2:])-8)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		if header[1] == echoRequest {
			say(echoReply, body, header[4:])
		}
	}
}
