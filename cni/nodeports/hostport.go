package nodeports

import (
	"fmt"
	"net/netip"
)

// HostPort is a port of the node that leads to a pod.
type HostPort struct {
	Address  netip.Addr // of the node; unspecified for every address of its family
	Protocol string     // "tcp", "udp", "sctp"
	Number   uint16
	Pod      netip.AddrPort // of the same family
}

// String returns the port for messages.
func (p HostPort) String() string {
	return fmt.Sprintf("host port %s %s", p.Protocol, netip.AddrPortFrom(p.Address, p.Number))
}
