// Package port reserves ports of loopback for servers that a test stops and starts again.
package port

import (
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Port is a reserved port of loopback: a bound socket that does not listen. A server with SO_REUSEPORT can listen on the
// port repeatedly; without a server, connections are refused.
type Port struct {
	netip.AddrPort
	socket int
}

// Reserve reserves a port, which the caller must release.
func Reserve() (*Port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	p := &Port{socket: socket}
	if err := p.bind(); err != nil {
		_ = unix.Close(socket)
		return nil, fmt.Errorf("reserve port: %w", err)
	}
	return p, nil
}

func (p *Port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	inet, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("bound to %T", bound)
	}
	p.AddrPort = netip.AddrPortFrom(loopback, uint16(inet.Port))
	return nil
}

// Number returns the number in decimal.
func (p *Port) Number() string { return strconv.Itoa(int(p.Port())) }

// Release releases the port. It may be called again.
func (p *Port) Release() error {
	if p.socket < 0 {
		return nil
	}
	err := unix.Close(p.socket)
	p.socket = -1
	return err
}
