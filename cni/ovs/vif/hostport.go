package vif

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// HostPort is a port of the node that leads to a port of the pod.
type HostPort struct {
	Address  netip.Addr // of the node; unspecified for every address of its family
	Protocol string     // "tcp", "udp", "sctp"
	Number   uint16
	Pod      uint16 // port of the pod
}

// Overlaps reports whether a packet can be for both ports.
func (p HostPort) Overlaps(o HostPort) bool {
	return p.Protocol == o.Protocol && p.Number == o.Number && p.SameFamily(o.Address) &&
		(p.Address == o.Address || p.Address.IsUnspecified() || o.Address.IsUnspecified())
}

// SameFamily reports whether the port can lead to an address: it is of the same family.
func (p HostPort) SameFamily(a netip.Addr) bool { return p.Address.Is4() == a.Is4() }

// OtherFamily returns the same port at every address of the other family, if the port is one at every address; otherwise
// the zero value. A pod that names no address has both.
func (p HostPort) OtherFamily() HostPort {
	switch {
	case !p.Address.IsUnspecified():
		return HostPort{}
	case p.Address.Is4():
		p.Address = netip.IPv6Unspecified()
	default:
		p.Address = netip.IPv4Unspecified()
	}
	return p
}

// String returns the port for messages.
func (p HostPort) String() string {
	return fmt.Sprintf("host port %s %s", p.Protocol, netip.AddrPortFrom(p.Address, p.Number))
}

// encode returns the port in external_ids, and decodeHostPort reads it.
func (p HostPort) encode() string {
	return fmt.Sprintf("%s/%s/%d/%d", p.Protocol, p.Address, p.Number, p.Pod)
}

func decodeHostPort(text string) (p HostPort, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return p, fmt.Errorf("%q: want four parts", text)
	}
	p.Protocol = parts[0]
	address, errAddress := netip.ParseAddr(parts[1])
	number, errNumber := strconv.ParseUint(parts[2], 10, 16)
	pod, errPod := strconv.ParseUint(parts[3], 10, 16)
	p.Address, p.Number, p.Pod = address, uint16(number), uint16(pod)
	err = errors.Join(errAddress, errNumber, errPod)
	if err == nil && (!slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) || number == 0 || pod == 0) {
		err = fmt.Errorf("%q: the protocol or a port is invalid", text)
	}
	return p, err
}
