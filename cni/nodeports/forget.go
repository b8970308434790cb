package nodeports

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// noteChanged notes the ports that are about to change, for forget: all if the former content is not known.
func (t *Table) noteChanged(before, now elements) {
	if before == nil {
		t.unforgotten = nil
	}
	if t.unforgotten == nil {
		return
	}
	for _, k := range before.diff(now) {
		if port := k.port(); port.protocol == unix.IPPROTO_UDP {
			t.unforgotten[port] = true
		}
	}
}

// forget deletes the kernel's connections of UDP to changed ports that lead elsewhere now. Otherwise a
// client that keeps sending would never reach another endpoint. If it fails, the next call repeats it.
// The first one is about all ports if there are ports or a table, because an earlier process may have ended
// before.
func (t *Table) forget(now elements) error {
	if t.unforgotten != nil && len(t.unforgotten) == 0 {
		return nil
	}
	if err := forget(t.cfg.Netns, stale{t.unforgotten, now.targets(), t.place.Inside, now.restricted()}.matches); err != nil {
		return fmt.Errorf("forget the UDP connections of changed ports of services: %w", err)
	}
	t.unforgotten = map[portKey]bool{}
	return nil
}

// ForgetOthers deletes the kernel's connections of others than the node's programs whose source was
// translated to an address. Their next packets begin them again, by the rules of now.
func ForgetOthers(ns netns.NsHandle, source netip.Addr) error {
	if err := forget(ns, func(f *netlink.ConntrackFlow, own addresses) bool { return ofOthers(f, own, source) }); err != nil {
		return fmt.Errorf("forget the connections of others with source %s: %w", source, err)
	}
	return nil
}

func ofOthers(f *netlink.ConntrackFlow, own addresses, source netip.Addr) bool {
	return f.Reverse.DstIP.Equal(source.AsSlice()) && !own.has(f.Forward.SrcIP)
}

// addresses are the addresses of the node.
type addresses []netlink.Addr

func (own addresses) has(ip net.IP) bool {
	return slices.ContainsFunc(own, func(a netlink.Addr) bool { return a.IP.Equal(ip) })
}

// filter implements netlink.CustomConntrackFilter.
type filter func(*netlink.ConntrackFlow) bool

var _ netlink.CustomConntrackFilter = filter(nil)

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (m filter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool { return m(f) }

// forget deletes the connections of a network namespace that match.
func forget(ns netns.NsHandle, matches func(f *netlink.ConntrackFlow, own addresses) bool) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	own, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return err
	}
	_, err = links.Dump(func() (none []struct{}, err error) {
		_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter(func(f *netlink.ConntrackFlow) bool { return matches(f, own) }))
		return none, err
	})
	return err
}

// stale matches UDP connections to ports of services that do not lead to a target of the port, or whose
// client must not reach it.
type stale struct {
	changed map[portKey]bool // nil: all ports
	targets map[portKey]map[string]bool
	inside  []netip.Prefix // the addresses of pods and services
	// restricted has the clients of each restricted port.
	restricted map[portKey][]netipx.IPRange
}

func (s stale) matches(f *netlink.ConntrackFlow, own addresses) bool {
	address, valid := netip.AddrFromSlice(f.Forward.DstIP)
	to, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	if !valid || !ok || f.Forward.Protocol != unix.IPPROTO_UDP || f.Zone != 0 { // zones belong to the switch
		return false
	}
	address, to = address.Unmap(), to.Unmap()
	at := portKey{address, f.Forward.Protocol, f.Forward.DstPort}
	if _, external := s.targets[at]; !external && !s.changed[at] && own.has(f.Forward.DstIP) {
		at.address = everyAddress
	}
	return s.concerns(at, address, to) && (!s.targets[at][addressOf(netip.AddrPortFrom(to, f.Reverse.SrcPort))] || s.refused(at, f.Forward.SrcIP))
}

// refused reports whether a client must not reach a port.
func (s stale) refused(at portKey, client net.IP) bool {
	ranges, only := s.restricted[at]
	from, _ := netip.AddrFromSlice(client)
	return only && !slices.ContainsFunc(ranges, func(r netipx.IPRange) bool { return r.Contains(from.Unmap()) })
}

// concerns reports whether a connection can be one of a port. If all ports count, these are the
// ports that are there now, and those whose connections were led to a pod or a service. Such a connection
// of another program begins again with its next packet.
func (s stale) concerns(at portKey, asked, to netip.Addr) bool {
	if s.changed != nil {
		return s.changed[at]
	}
	_, exists := s.targets[at]
	return exists || asked != to && slices.ContainsFunc(s.inside, func(p netip.Prefix) bool { return p.Contains(to) })
}
