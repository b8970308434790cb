package packets

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// Way is the way of packets from one pod or host to another one, or to itself.
type Way struct {
	From, To string
	Address  netip.Addr // of To
	// Service is the address of a service that leads to To, and its port, which is 0 if it is Port. Packets are sent to it. Zero for Address.
	Service netip.AddrPort
	// Port is different for ways to the same pod by the same protocol. Zero for a default.
	Port uint16
	// TCP is set for packets of TCP, which sends lost ones again. Without it they are of UDP.
	TCP bool
	// Denied is a way on which no packet may arrive. It is not of TCP.
	Denied bool
}

// sentTo returns where packets are sent.
func (w Way) sentTo() netip.AddrPort {
	switch {
	case !w.Service.Addr().IsValid():
		return netip.AddrPortFrom(w.Address, w.Port)
	case w.Service.Port() == 0:
		return netip.AddrPortFrom(w.Service.Addr(), w.Port)
	default:
		return w.Service
	}
}

// network returns the network of package net.
func (w Way) network() string {
	name := "udp"
	if w.TCP {
		name = "tcp"
	}
	if w.Address.Is6() {
		return name + "6"
	}
	return name + "4"
}

func (w Way) String() string {
	text := fmt.Sprintf("from %s to %s", w.From, w.To)
	if w.Service.Addr().IsValid() {
		text += " by " + w.sentTo().String()
	}
	return fmt.Sprintf("%s port %d of %s", text, w.Port, w.network())
}

// headers is the number of bytes that a packet has besides its payload.
func (w Way) headers() int {
	n := 20 // IPv4
	if w.Address.Is6() {
		n = 40
	}
	if w.TCP {
		return n + 32 // with its time stamps
	}
	return n + 8
}

// control lets the socket of a flow have room for its packets, and fragment none.
func (w Way) control(_, _ string, c syscall.RawConn) (err error) {
	level, option := syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER
	if w.Address.Is6() {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER
	}
	return errors.Join(c.Control(func(fd uintptr) {
		err = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, flowBuffer),
			syscall.SetsockoptInt(int(fd), level, option, syscall.IP_PMTUDISC_DO),
		)
	}), err)
}
