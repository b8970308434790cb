package porttables

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// CheckHostPorts fails if the address of a host port is not one of the node in ns, or if a program of the node listens
// on the port. It does not see programs that listen on SCTP.
func CheckHostPorts(ns netns.NsHandle, ports []nodeports.HostPort) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_INET_DIAG)
	if err != nil {
		return fmt.Errorf("check host ports: %w", err)
	}
	defer h.Close()
	own, err := links.Addresses(ns)
	if err != nil {
		return fmt.Errorf("check host ports: %w", err)
	}
	open := map[string][]netlink.SocketID{}
	for _, p := range ports {
		if !p.Address.IsUnspecified() && !slices.Contains(own, p.Address) {
			return fmt.Errorf("%s: the node has no address %s", p, p.Address)
		}
		if open[p.Protocol] == nil {
			if open[p.Protocol], err = listeners(h, p.Protocol); err != nil {
				return fmt.Errorf("%s: list the sockets of the node: %w", p, err)
			}
		}
		for _, s := range open[p.Protocol] {
			if s.SourcePort == p.Number && concerns(p, s.Source) {
				return fmt.Errorf("%s: a program of the node listens on %s; choose another port or another address", p, net.JoinHostPort(s.Source.String(), fmt.Sprint(p.Number)))
			}
		}
	}
	return nil
}

// listeners lists the sockets of a protocol that receive packets from everybody.
func listeners(h *netlink.Handle, protocol string) ([]netlink.SocketID, error) {
	const tcpListen, udpUnconnected = 10, 7 // TCP_LISTEN and TCP_CLOSE
	list, state := h.SocketDiagTCP, uint8(tcpListen)
	switch protocol {
	case "tcp":
	case "udp":
		list, state = h.SocketDiagUDP, udpUnconnected
	default:
		return []netlink.SocketID{}, nil
	}
	open := []netlink.SocketID{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := links.Dump(func() ([]*netlink.Socket, error) { return list(family) })
		if err != nil && !errors.Is(err, unix.ENOENT) { // the kernel has no sockets of this kind
			return nil, err
		}
		for _, s := range all {
			if s.State == state {
				open = append(open, s.ID)
			}
		}
	}
	return open, nil
}

// concerns reports whether a packet can be for the port and for a socket with an address. A socket with the unspecified
// address of IPv6 can serve IPv4 too.
func concerns(p nodeports.HostPort, socket net.IP) bool {
	at, _ := netip.AddrFromSlice(socket)
	if at == netip.IPv6Unspecified() {
		return true
	}
	at = at.Unmap()
	return at.Is4() == p.Address.Is4() && (at.IsUnspecified() || p.Address.IsUnspecified() || p.Address == at)
}
