package nodeports

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// forget deletes the kernel's connections of UDP to node ports that lead elsewhere now. Otherwise a
// client that keeps sending would never reach another endpoint.
func forget(ns netns.NsHandle, before, now elements) error {
	changed := map[[2]uint16]bool{}
	for _, k := range before.diff(now) {
		if protocol, number := k.port(); protocol == unix.IPPROTO_UDP {
			changed[[2]uint16{uint16(protocol), number}] = true
		}
	}
	if len(changed) == 0 {
		return nil
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	own, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return err
	}
	filter := stale{own, changed, now.targets()}
	_, err = links.Dump(func() (none []struct{}, err error) {
		_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter)
		return none, err
	})
	return err
}

// stale matches connections to changed ports of the node that do not lead to a target of the port.
type stale struct {
	own     []netlink.Addr
	changed map[[2]uint16]bool
	targets map[[2]uint16]map[string]bool
}

var _ netlink.CustomConntrackFilter = stale{}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	at := [2]uint16{uint16(f.Forward.Protocol), f.Forward.DstPort}
	to, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && s.changed[at] && !s.targets[at][addressOf(netip.AddrPortFrom(to.Unmap(), f.Reverse.SrcPort))] &&
		slices.ContainsFunc(s.own, func(a netlink.Addr) bool { return a.IP.Equal(f.Forward.DstIP) })
}
