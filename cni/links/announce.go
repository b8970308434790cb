package links

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Announce sends a gratuitous ARP for each IPv4 address of a pod's link, and an unsolicited
// neighbour advertisement for each IPv6 address.
func Announce(pod netns.NsHandle, name string, mac net.HardwareAddr, addresses []netip.Addr) error {
	var index int
	err := At(pod, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	if err == nil {
		err = Inside(pod, func() error { return sendFrames(index, mac, addresses) })
	}
	if err != nil {
		return fmt.Errorf("announce the addresses of link %s: %w", name, err)
	}
	return nil
}

func sendFrames(index int, mac net.HardwareAddr, addresses []netip.Addr) error {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	// Closing takes the kernel about 10 ms; the caller need not wait.
	defer func() { go func() { _ = unix.Close(socket) }() }()
	for _, a := range addresses {
		frame := gratuitousARP(mac, a)
		if a.Is6() {
			frame = unsolicitedAdvertisement(mac, a)
		}
		if err := unix.Sendto(socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
			return fmt.Errorf("send for %s: %w", a, err)
		}
	}
	return nil
}

// gratuitousARP returns the frame of an ARP announcement (RFC 5227 section 3).
func gratuitousARP(mac net.HardwareAddr, a netip.Addr) []byte {
	frame := header(bytes.Repeat([]byte{0xff}, 6), mac, unix.ETH_P_ARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1) // Ethernet, IPv4, their lengths, request
	frame = append(append(frame, mac...), a.AsSlice()...)
	return append(append(frame, make([]byte, 6)...), a.AsSlice()...)
}

const (
	protocolICMPv6  = 58
	advertisement   = 136  // RFC 4861 section 4.4
	overrideFlag    = 0x20 // in the first octet of the flags
	targetLink      = 2    // the option Target Link-Layer Address
	advertisedBytes = 32
)

// unsolicitedAdvertisement returns the frame of a neighbour advertisement to all nodes.
func unsolicitedAdvertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	all := netip.IPv6LinkLocalAllNodes()
	body := append([]byte{advertisement, 0, 0, 0, overrideFlag, 0, 0, 0}, a.AsSlice()...)
	body = append(append(body, targetLink, 1), mac...)
	pseudo := append(append(a.AsSlice(), all.AsSlice()...), 0, 0, 0, advertisedBytes, 0, 0, 0, protocolICMPv6)
	binary.BigEndian.PutUint16(body[2:], checksum(append(pseudo, body...)))

	frame := header([]byte{0x33, 0x33, 0, 0, 0, 1}, mac, unix.ETH_P_IPV6)
	frame = append(frame, 0x60, 0, 0, 0, 0, advertisedBytes, protocolICMPv6, 255)
	frame = append(append(frame, a.AsSlice()...), all.AsSlice()...)
	return append(frame, body...)
}

func header(to, from net.HardwareAddr, protocol uint16) []byte {
	frame := append(append([]byte{}, to...), from...)
	return binary.BigEndian.AppendUint16(frame, protocol)
}

// checksum is the Internet checksum (RFC 1071) of an even number of octets.
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(data[i])<<8 | uint32(data[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
