package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The headers of a frame: Ethernet, IPv4 (RFC 791) and UDP (RFC 768).
const (
	hardwareBytes = 6
	atType        = 2 * hardwareBytes
	atIP          = atType + 2

	minIP      = 20
	ipLength   = 2
	ipFragment = 6
	ipTTL      = 8
	ipProtocol = 9
	ipChecksum = 10
	ipSource   = 12
	ipTo       = 16

	udpBytes    = 8
	udpTo       = 2
	udpLength   = 4
	udpChecksum = 6

	clientPort = 68
	serverPort = 67

	// fragmented are the bits of the offset of a fragment, and of more fragments.
	fragmented = 0x3fff
	ttl        = 64
)

// maxFrame is how many bytes of a request are read. A request of a client that sends everything that the RFCs define is shorter.
const maxFrame = 1600

// filter lets a packet socket receive only whole IPv4 packets to the port of a server that come from the client.
func filter() ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType}, // what the switch sends to the pod is not for the server
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING},
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0},
		bpf.LoadAbsolute{Off: atType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP},
		bpf.LoadAbsolute{Off: atIP + ipProtocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP},
		bpf.LoadAbsolute{Off: atIP + ipFragment, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: fragmented},
		bpf.LoadMemShift{Off: atIP}, // X is the length of the IP header
		bpf.LoadIndirect{Off: atIP + udpTo, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: serverPort},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	}
	last := len(program) - 1 // refuses
	for i, one := range program {
		if jump, is := one.(bpf.JumpIf); is {
			jump.SkipTrue = uint8(last - i - 1)
			program[i] = jump
		}
	}
	return bpf.Assemble(program)
}

// payload returns the DHCP message in a frame that passed the filter; nil if a length in it is wrong. The checksum of UDP is not
// verified: the kernel of a pod leaves it to its link.
func payload(frame []byte) []byte {
	if len(frame) < atIP+minIP {
		return nil
	}
	ip := frame[atIP:]
	header, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[ipLength:]))
	if ip[0]>>4 != 4 || header < minIP || total > len(ip) || total < header+udpBytes {
		return nil
	}
	udp := ip[header:total]
	length := int(binary.BigEndian.Uint16(udp[udpLength:]))
	if length < udpBytes || length > len(udp) {
		return nil
	}
	return udp[udpBytes:length]
}

// frame returns an answer as a frame from a link to the client (RFC 2131 section 4.1).
func (l *Lease) frame(from net.HardwareAddr, out *dhcpv4.DHCPv4) []byte {
	mac, to := l.MAC, l.Address.Addr()
	if out.IsBroadcast() {
		mac, to = bytes.Repeat([]byte{0xff}, hardwareBytes), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	message := out.ToBytes()
	frame := make([]byte, atIP+minIP+udpBytes, atIP+minIP+udpBytes+len(message))
	copy(frame, mac)
	copy(frame[hardwareBytes:], from)
	binary.BigEndian.PutUint16(frame[atType:], unix.ETH_P_IP)

	ip := frame[atIP : atIP+minIP]
	ip[0] = 4<<4 | minIP/4
	binary.BigEndian.PutUint16(ip[ipLength:], uint16(minIP+udpBytes+len(message)))
	ip[ipTTL], ip[ipProtocol] = ttl, unix.IPPROTO_UDP
	copy(ip[ipSource:], l.Gateway.AsSlice())
	copy(ip[ipTo:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[ipChecksum:], checksum(ip))

	udp := frame[atIP+minIP:]
	binary.BigEndian.PutUint16(udp, serverPort)
	binary.BigEndian.PutUint16(udp[udpTo:], clientPort)
	binary.BigEndian.PutUint16(udp[udpLength:], uint16(udpBytes+len(message)))
	pseudo := append(append(l.Gateway.AsSlice(), to.AsSlice()...), 0, unix.IPPROTO_UDP)
	pseudo = append(append(append(pseudo, udp[udpLength:udpChecksum]...), udp...), message...)
	sum := checksum(pseudo)
	if sum == 0 {
		sum = 0xffff // zero means that there is none
	}
	binary.BigEndian.PutUint16(udp[udpChecksum:], sum)
	return append(frame, message...)
}

// checksum returns the checksum of the internet protocols (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for ; len(data) > 1; data = data[2:] {
		sum += uint32(data[0])<<8 | uint32(data[1])
	}
	if len(data) == 1 {
		sum += uint32(data[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
