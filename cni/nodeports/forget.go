package nodeports

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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

// forget deletes the kernel's connections of UDP to changed node ports that lead elsewhere now. Otherwise a
// client that keeps sending would never reach another endpoint. If it fails, the next call repeats it.
// The first one is about all ports, because an earlier process may have ended before.
func (t *Table) forget(now elements) error {
	if t.unforgotten != nil && len(t.unforgotten) == 0 {
		return nil
	}
	if err := (stale{changed: t.unforgotten, targets: now.targets()}).forget(t.cfg.Netns); err != nil {
		return fmt.Errorf("forget the UDP connections of changed node ports: %w", err)
	}
	t.unforgotten = map[portKey]bool{}
	return nil
}

// stale matches UDP connections to ports of the node that do not lead to a target of the port.
type stale struct {
	own     []netlink.Addr
	changed map[portKey]bool // nil: all ports
	targets map[portKey]map[string]bool
}

var _ netlink.CustomConntrackFilter = stale{}

// forget deletes the connections of a network namespace that match.
func (s stale) forget(ns netns.NsHandle) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	if s.own, err = links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) }); err != nil {
		return err
	}
	_, err = links.Dump(func() (none []struct{}, err error) {
		_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, s)
		return none, err
	})
	return err
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	at := portKey{f.Forward.Protocol, f.Forward.DstPort}
	to, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && at.protocol == unix.IPPROTO_UDP && s.concerns(at, f) && !s.targets[at][addressOf(netip.AddrPortFrom(to.Unmap(), f.Reverse.SrcPort))] &&
		slices.ContainsFunc(s.own, func(a netlink.Addr) bool { return a.IP.Equal(f.Forward.DstIP) })
}

// concerns reports whether a connection can be one of a node port. If all ports count, these are the
// ports that are there now, and those whose connections were led elsewhere. A connection that another
// program leads elsewhere begins again with its next packet.
func (s stale) concerns(at portKey, f *netlink.ConntrackFlow) bool {
	if s.changed != nil {
		return s.changed[at]
	}
	_, exists := s.targets[at]
	return exists || !f.Reverse.SrcIP.Equal(f.Forward.DstIP)
}
