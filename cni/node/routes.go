package node

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// protocol marks our routes. No routing daemon uses this number.
const protocol = 206

// putRoutes makes our routes equal to the wanted routes.
func putRoutes(ns netns.NsHandle, w wanted) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(linkName)
		if err != nil {
			return fmt.Errorf("find link %s: %w", linkName, err)
		}
		have, err := ownRoutes(h, l)
		if err != nil {
			return err
		}
		for _, r := range w.routes() {
			is, found := have[r.to]
			delete(have, r.to)
			if found && w.same(is, r) {
				continue
			}
			failed := putRoute(h, w.kernel(l, r), found)
			changed = changed || failed == nil
			err = errors.Join(err, failed)
		}
		for _, is := range have {
			changed = true
			if failed := h.RouteDel(&is); failed != nil && !errors.Is(failed, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("remove route to %s: %w", is.Dst, failed))
			}
		}
		return err
	})
	return changed, err
}

// ownRoutes returns our routes by destination.
func ownRoutes(h *netlink.Handle, l netlink.Link) (map[netip.Prefix]netlink.Route, error) {
	filter := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol}
	all, err := links.Dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes of link %s: %w", linkName, err)
	}
	own := map[netip.Prefix]netlink.Route{}
	for _, r := range all {
		own[links.PrefixOf(r.Dst)] = r
	}
	return own, nil
}

func (w wanted) same(is netlink.Route, r route) bool {
	via, _ := netip.AddrFromSlice(is.Gw)
	src, _ := netip.AddrFromSlice(is.Src)
	return via.Unmap() == r.via && src.Unmap() == w.address
}

func (w wanted) kernel(l netlink.Link, r route) *netlink.Route {
	out := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: links.IPNet(r.to), Src: w.address.AsSlice(), Protocol: protocol, Scope: netlink.SCOPE_LINK,
	}
	if r.via.IsValid() {
		out.Gw, out.Scope = r.via.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	return out
}

// putRoute adds a route, or replaces one of ours. It does not replace other routes.
func putRoute(h *netlink.Handle, r *netlink.Route, replace bool) error {
	do := h.RouteAdd
	if replace {
		do = h.RouteReplace
	}
	err := do(r)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("add route to %s: the node already has another route to it; "+
			"check whether the range is used elsewhere, and give pods, services and nodes ranges of their own", r.Dst)
	case err != nil:
		return fmt.Errorf("add route to %s: %w", r.Dst, err)
	}
	return nil
}
