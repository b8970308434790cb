// Package sctp sends and receives INIT chunks of SCTP by raw sockets, because the kernel of the tests has no SCTP.
package sctp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// headerLen is the length of the common header (RFC 9260, section 3.1).
const headerLen = 12

// castagnoli has the polynomial of SCTP's checksum (RFC 9260, appendix A).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// initOf returns a packet with an INIT chunk (RFC 9260, section 3.3.2).
func initOf(from, to uint16) []byte {
	p := binary.BigEndian.AppendUint16(nil, from)
	p = binary.BigEndian.AppendUint16(p, to)
	p = append(p, make([]byte, 8)...) // the verification tag of an INIT is 0; then the checksum
	p = append(p, 1, 0, 0, 20)        // INIT, no flags, 20 bytes
	for _, value := range []uint32{1 /* initiate tag */, 64 << 10 /* window */, 1<<16 | 1 /* streams */, 1 /* initial TSN */} {
		p = binary.BigEndian.AppendUint32(p, value)
	}
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, castagnoli))
	return p
}

// Send sends an INIT from a port in the current network namespace.
func Send(from uint16, to netip.AddrPort) error {
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return fmt.Errorf("open a raw socket of SCTP: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, initOf(from, to.Port()), 0, address); err != nil {
		return fmt.Errorf("send an INIT to %s: %w", to, err)
	}
	return nil
}

// Packet is a received packet of SCTP.
type Packet struct {
	From netip.AddrPort
	To   uint16
	// Sound reports whether the checksum is correct.
	Sound bool
}

// Listener receives the packets of SCTP to a network namespace. The zero value receives nothing.
type Listener struct{ fds []int }

// Listen opens a raw socket for each family in the current network namespace.
func Listen() (l Listener, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return Listener{}, errors.Join(fmt.Errorf("open a raw socket of SCTP: %w", err), l.Close())
		}
		l.fds = append(l.fds, fd)
	}
	return l, nil
}

// Close closes the sockets.
func (l Listener) Close() (err error) {
	for _, fd := range l.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// Received returns the packets that have come in since the last call.
func (l Listener) Received() (all []Packet, err error) {
	buffer := make([]byte, 256)
	for i, fd := range l.fds {
		for {
			n, from, err := unix.Recvfrom(fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return all, fmt.Errorf("receive SCTP: %w", err)
			}
			packet := buffer[:n]
			if i == 0 && n > 0 { // a raw socket of IPv4 receives the header of IP
				packet = packet[min(n, int(packet[0]&0x0f)*4):]
			}
			if len(packet) >= headerLen {
				all = append(all, parse(packet, addressOf(from)))
			}
		}
	}
	return all, nil
}

func parse(packet []byte, from netip.Addr) Packet {
	p := Packet{From: netip.AddrPortFrom(from, binary.BigEndian.Uint16(packet)), To: binary.BigEndian.Uint16(packet[2:])}
	sum := binary.LittleEndian.Uint32(packet[8:])
	clear(packet[8:headerLen])
	p.Sound = sum == crc32.Checksum(packet, castagnoli)
	return p
}

// addressOf returns the address of a socket.
func addressOf(s unix.Sockaddr) netip.Addr {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(s.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(s.Addr)
	}
	return netip.Addr{}
}
