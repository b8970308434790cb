// Package policyroute sends what comes in by a link of the node, and is not for the node, to a router behind the same link. It has a
// routing rule and a routing table for each link. So networks behind several links can have the same addresses. It knows nothing of
// what is sent.
package policyroute

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// Priority is the priority of the routing rules: before the routes of the node.
const Priority = 207

// firstTable plus the index of a link is the number of its routing table. The kernel gives each link an index of its own.
const firstTable = 1 << 30

// Put gives each link of a network namespace the rule and the route to its router, by IPv4, and removes the rules and routes of other links. It
// reports whether it changed anything. A link that does not exist is left out. It puts routes before the rules that need them, and
// removes those that no rule needs any more.
func Put(ns netns.NsHandle, routers map[string]netip.Addr) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		changed, err = put(h, routers)
		return err
	})
	return changed, err
}

func put(h *netlink.Handle, routers map[string]netip.Addr) (changed bool, err error) {
	tables := map[string]int{} // by link
	left, err := routes(h)
	if err != nil {
		return false, err
	}
	for link, router := range routers {
		l, failed := h.LinkByName(link)
		if errors.As(failed, new(netlink.LinkNotFoundError)) {
			continue
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("find link %s: %w", link, failed))
			continue
		}
		want := netlink.Route{
			LinkIndex: l.Attrs().Index, Dst: links.IPNet(everywhere), Gw: router.AsSlice(), Table: firstTable + l.Attrs().Index,
			Protocol: links.Protocol, Flags: int(netlink.FLAG_ONLINK),
		}
		tables[link] = want.Table
		is, found := left[want.Table]
		delete(left, want.Table)
		if found && is.LinkIndex == want.LinkIndex && is.Gw.Equal(want.Gw) {
			continue
		}
		changed = true
		if failed := h.RouteReplace(&want); failed != nil {
			err = errors.Join(err, fmt.Errorf("add route of link %s to the router %s: %w", link, router, failed))
		}
	}
	ruled, failed := putRules(h, tables)
	changed, err = changed || ruled, errors.Join(err, failed)
	for _, is := range left {
		changed = true
		if failed := h.RouteDel(&is); failed != nil && !errors.Is(failed, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("remove route of table %d: %w", is.Table, failed))
		}
	}
	return changed, err
}

// routes returns the routes of our tables.
func routes(h *netlink.Handle) (map[int]netlink.Route, error) {
	all, err := links.Dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: links.Protocol, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes to services: %w", err)
	}
	have := map[int]netlink.Route{}
	for _, r := range all {
		if r.Table >= firstTable {
			have[r.Table] = r
		}
	}
	return have, nil
}

// putRules makes our routing rules those from links to tables.
func putRules(h *netlink.Handle, tables map[string]int) (changed bool, err error) {
	all, err := links.Dump(func() ([]netlink.Rule, error) { return h.RuleList(netlink.FAMILY_V4) })
	if errors.Is(err, unix.EOPNOTSUPP) && len(tables) == 0 {
		return false, nil // the kernel has no routing rules
	}
	if err != nil {
		return false, fmt.Errorf("list routing rules: %w", err)
	}
	missing := maps.Clone(tables)
	for _, is := range all {
		if is.Protocol != links.Protocol || is.Priority != Priority {
			continue
		}
		if table, wanted := missing[is.IifName]; wanted && table == is.Table {
			delete(missing, is.IifName)
			continue
		}
		changed = true
		if failed := h.RuleDel(&is); failed != nil && !errors.Is(failed, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove the routing rule of link %s: %w", is.IifName, failed))
		}
	}
	for link, table := range missing {
		changed = true
		r := netlink.NewRule()
		r.Family, r.Priority, r.Protocol, r.IifName, r.Table = netlink.FAMILY_V4, Priority, links.Protocol, link, table
		if failed := h.RuleAdd(r); failed != nil && !errors.Is(failed, unix.EEXIST) {
			err = errors.Join(err, fmt.Errorf("add the routing rule of link %s: %w", link, failed))
		}
	}
	return changed, err
}

var everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
