package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
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
const dhcpTries = 20

// dhcpLease is the lease of a DHCP server.
type dhcpLease struct {
	address      netip.Addr
	maskBits     int
	routers, dns []netip.Addr
	leaseSeconds uint32
	server       netip.Addr
}

func (l dhcpLease) subnet() netip.Prefix { return netip.PrefixFrom(l.address, l.maskBits).Masked() }

// askDHCP asks for an address on eth0 of a network namespace, in the four messages
// of RFC 2131.
func askDHCP(ctx context.Context, namespace string, mac net.HardwareAddr) (dhcpLease, error) {
	conn, err := listenDHCP(ctx, namespace)
	if err != nil {
		return dhcpLease{}, fmt.Errorf("open DHCP client: %w", err)
	}
	defer func() { _ = conn.Close() }()
	offer, err := exchangeDHCP(conn, dhcpMessage(mac, dhcpDiscover), dhcpOffer)
	if err != nil {
		return dhcpLease{}, fmt.Errorf("discover: %w", err)
	}
	request := dhcpMessage(mac, dhcpRequest,
		dhcpOption(optionRequested, offer.address.AsSlice()), dhcpOption(optionServer, offer.server.AsSlice()))
	ack, err := exchangeDHCP(conn, request, dhcpAck)
	if err != nil {
		return dhcpLease{}, fmt.Errorf("request %s: %w", offer.address, err)
	}
	return ack, nil
}

// listenDHCP opens a DHCP client's socket in a network namespace.
func listenDHCP(ctx context.Context, namespace string) (conn net.PacketConn, err error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer func() { _ = home.Close() }()
	away, err := netns.GetFromName(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = away.Close() }()
	if err := netns.Set(away); err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, netns.Set(home)); err == nil {
			runtime.UnlockOSThread()
		}
	}()
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bound error
		err := raw.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), "eth0") })
		return errors.Join(err, bound)
	}}
	return cfg.ListenPacket(ctx, "udp4", "0.0.0.0:68")
}

func exchangeDHCP(conn net.PacketConn, message []byte, want byte) (dhcpLease, error) {
	server := &net.UDPAddr{IP: net.IPv4bcast, Port: 67}
	for range dhcpTries {
		if _, err := conn.WriteTo(message, server); err != nil {
			return dhcpLease{}, err
		}
		if err := conn.SetReadDeadline(time.Now().Add(250 * time.Millisecond)); err != nil {
			return dhcpLease{}, err
		}
		answer := make([]byte, 1500)
		n, _, err := conn.ReadFrom(answer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return dhcpLease{}, err
		}
		if lease, kind := parseDHCP(answer[:n]); kind == want && bytes.Equal(answer[4:8], message[4:8]) {
			return lease, nil
		}
	}
	return dhcpLease{}, errors.New("no answer")
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
func parseDHCP(m []byte) (l dhcpLease, kind byte) {
	if len(m) < dhcpHeader || !bytes.Equal(m[236:240], dhcpCookie) {
		return l, 0
	}
	l.address = netip.AddrFrom4([4]byte(m[16:20]))
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
			l.maskBits, _ = net.IPMask(value).Size()
		case optionRouter:
			l.routers = addresses(value)
		case optionDNS:
			l.dns = addresses(value)
		case optionLease:
			l.leaseSeconds = binary.BigEndian.Uint32(value)
		case optionServer:
			l.server = addresses(value)[0]
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
