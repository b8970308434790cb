// Package dhcpclient has DHCP clients for the pods of a lab: one for DHCPv4 that reads each message, one for DHCPv6, and udhcpc of BusyBox, which
// configures the link. The package knows neither the server, which is OVN or the agent, nor how a pod got its link.
package dhcpclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The DHCP messages of the client (RFC 2131, RFC 2132).
const (
	dhcpDiscover, dhcpOffer, dhcpRequest, dhcpAck = 1, 2, 3, 5

	optionMask, optionRouter, optionDNS = 1, 3, 6
	optionRequested, optionLease        = 50, 51
	optionType, optionServer            = 53, 54
	optionParameters, optionEnd         = 55, 255

	dhcpHeader = 240 // length of the fixed part, with the magic cookie
)

var dhcpCookie = []byte{99, 130, 83, 99}

// dhcpTries is the number of tries of a client. Each try lasts a quarter of a second.
const dhcpTries = 120

// Lease is the lease of a DHCP server.
type Lease struct {
	Address      netip.Addr
	MaskBits     int
	Routers, DNS []netip.Addr
	Seconds      uint32
	Server       netip.Addr
}

// Subnet returns the subnet of the leased address.
func (l Lease) Subnet() netip.Prefix { return netip.PrefixFrom(l.Address, l.MaskBits).Masked() }

// Ask asks for an address on eth0 of a pod, in the four messages of RFC 2131. It sends all
// of them to the link.
func Ask(ctx context.Context, lab *ovnhost.Lab, pod string, mac net.HardwareAddr) (Lease, error) {
	conn, err := listen(ctx, lab, pod)
	if err != nil {
		return Lease{}, fmt.Errorf("open DHCP client: %w", err)
	}
	defer func() { _ = conn.Close() }()
	offer, err := exchangeDHCP(conn, dhcpMessage(mac, dhcpDiscover), dhcpOffer)
	if err != nil {
		return Lease{}, fmt.Errorf("discover: %w", err)
	}
	request := dhcpMessage(mac, dhcpRequest,
		dhcpOption(optionRequested, offer.Address.AsSlice()), dhcpOption(optionServer, offer.Server.AsSlice()))
	ack, err := exchangeDHCP(conn, request, dhcpAck)
	if err != nil {
		return Lease{}, fmt.Errorf("request %s: %w", offer.Address, err)
	}
	return ack, nil
}

// listen opens a DHCP client's socket in a pod.
func listen(ctx context.Context, lab *ovnhost.Lab, pod string) (conn net.PacketConn, err error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bound error
		err := raw.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "eth0") })
		return errors.Join(err, bound)
	}}
	err = lab.In(pod, func() (err error) {
		conn, err = cfg.ListenPacket(ctx, "udp4", "0.0.0.0:68")
		return err
	})
	return conn, err
}

func exchangeDHCP(conn net.PacketConn, message []byte, want byte) (Lease, error) {
	server := &net.UDPAddr{IP: net.IPv4bcast, Port: 67}
	for range dhcpTries {
		if _, err := conn.WriteTo(message, server); err != nil {
			return Lease{}, err
		}
		if err := conn.SetReadDeadline(time.Now().Add(250 * time.Millisecond)); err != nil {
			return Lease{}, err
		}
		answer := make([]byte, 1500)
		n, _, err := conn.ReadFrom(answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return Lease{}, err
		}
		if lease, kind := parseDHCP(answer[:n]); kind == want && bytes.Equal(answer[4:8], message[4:8]) {
			return lease, nil
		}
	}
	return Lease{}, errors.New("no answer")
}

func dhcpMessage(mac net.HardwareAddr, kind byte, options ...[]byte) []byte {
	m := make([]byte, dhcpHeader)
	m[0], m[1], m[2] = 1, 1, 6 // a request, by ethernet, with addresses of 6 bytes
	copy(m[4:8], mac[2:])      // transaction: any number
	m[10] = 0x80               // broadcast the answer: the client has no address yet
	copy(m[28:], mac)
	copy(m[236:], dhcpCookie)
	m = append(m, dhcpOption(optionType, []byte{kind})...)
	m = append(m, dhcpOption(optionParameters, []byte{optionMask, optionRouter, optionDNS, optionLease})...)
	for _, o := range options {
		m = append(m, o...)
	}
	return append(m, optionEnd)
}

func dhcpOption(code byte, value []byte) []byte {
	return append([]byte{code, byte(len(value))}, value...)
}

// parseDHCP reads an answer and its kind. The kind is 0 if the message is not a DHCP answer.
func parseDHCP(m []byte) (l Lease, kind byte) {
	if len(m) < dhcpHeader || !bytes.Equal(m[236:240], dhcpCookie) {
		return l, 0
	}
	l.Address = netip.AddrFrom4([4]byte(m[16:20]))
	for o := m[dhcpHeader:]; len(o) >= 2 && o[0] != optionEnd; {
		if o[0] == 0 { // padding
			o = o[1:]
			continue
		}
		end := 2 + int(o[1])
		if len(o) < end {
			return l, 0
		}
		value := o[2:end]
		switch o[0] {
		case optionType:
			kind = value[0]
		case optionMask:
			l.MaskBits, _ = net.IPMask(value).Size()
		case optionRouter:
			l.Routers = addresses(value)
		case optionDNS:
			l.DNS = addresses(value)
		case optionLease:
			l.Seconds = binary.BigEndian.Uint32(value)
		case optionServer:
			l.Server = addresses(value)[0]
		}
		o = o[end:]
	}
	return l, kind
}

func addresses(value []byte) (out []netip.Addr) {
	for ; len(value) >= 4; value = value[4:] {
		out = append(out, netip.AddrFrom4([4]byte(value)))
	}
	return out
}
