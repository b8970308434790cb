package policies

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A probe of SCTP is an INIT, and the cell is open if it arrives. Raw sockets send and receive it,
// because the kernel of the tests has no SCTP.

// sctpHeader is the length of the common header (RFC 9260, section 3.1).
const sctpHeader = 12

// castagnoli has the polynomial of SCTP's checksum (RFC 9260, appendix A).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpInit returns a packet with an INIT chunk (RFC 9260, section 3.3.2).
func sctpInit(from, to uint16) []byte {
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

// listenSCTP opens a raw socket for each family in the pod, until the end of the test.
func (c *cluster) listenSCTP(p *pod) {
	c.t.Helper()
	require.NoError(c.t, c.lab.In(p.device(), func() error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
			if err != nil {
				return fmt.Errorf("open a raw socket of SCTP: %w", err)
			}
			c.t.Cleanup(func() { _ = unix.Close(fd) })
			p.sctp = append(p.sctp, fd)
		}
		return nil
	}))
}

// sendInit sends an INIT from the current network namespace. Its source port identifies the probe.
func (c *cell) sendInit(source uint16) error {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: c.address.As16()})
	if c.address.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: c.address.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return fmt.Errorf("open a raw socket of SCTP: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, sctpInit(source, c.port.Number), 0, to)
}

// nextSource returns a source port that no recent probe has.
func (c *cluster) nextSource() uint16 {
	const first, last = 20000, 60000
	c.source = max(first, c.source+1)
	if c.source == last {
		c.source = first
	}
	return c.source
}

// receiveInits sets which of the cells, by source port, are open.
func (c *cluster) receiveInits(sent map[uint16]*cell) error {
	buffer := make([]byte, 256)
	for _, p := range c.ends() {
		for i, fd := range p.sctp {
			for {
				n, from, err := unix.Recvfrom(fd, buffer, 0)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return fmt.Errorf("receive SCTP in pod %s: %w", p, err)
				}
				packet := buffer[:n]
				if i == 0 && n > 0 { // a raw socket of IPv4 receives the header of IP
					packet = packet[min(n, int(packet[0]&0x0f)*4):]
				}
				if len(packet) < sctpHeader {
					continue
				}
				one := sent[binary.BigEndian.Uint16(packet)]
				if one != nil && one.to == p && one.source == addressOf(from) && one.port.Number == binary.BigEndian.Uint16(packet[2:]) {
					one.open = true
				}
			}
		}
	}
	return nil
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
