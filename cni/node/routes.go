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

// protocol marks our routes.
const protocol = links.Protocol

// putRoutes makes our routes through the pairs equal to the wanted routes. It removes routes
// first: an address can move from one pair to another.
func putRoutes(ns netns.NsHandle, w wanted) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		have, err := ownRoutes(h)
		if err != nil {
			return err
		}
		taken, err := w.takenIPv6(h)
		if err != nil {
			return err
		}
		var missing []func() error
		for _, p := range w.pairs {
			l, failed := h.LinkByName(p.link)
			if failed != nil && len(p.routes) == 0 {
				continue // a step before has failed
			}
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("find link %s: %w", p.link, failed))
				continue
			}
			index := l.Attrs().Index
			for _, r := range p.routes {
				is, found := have[index][r.to]
				delete(have[index], r.to)
				if taken[r.to] {
					err = errors.Join(err, fmt.Errorf("add route to %s: %w", r.to, errTaken))
				}
				if !found || !w.same(is, r) {
					missing = append(missing, func() error { return putRoute(h, w.kernel(index, r), found) })
				}
			}
			for _, is := range have[index] {
				changed = true
				if failed := h.RouteDel(&is); failed != nil && !errors.Is(failed, unix.ESRCH) {
					err = errors.Join(err, fmt.Errorf("remove route to %s: %w", is.Dst, failed))
				}
			}
		}
		for _, put := range missing {
			failed := put()
			changed = changed || failed == nil
			err = errors.Join(err, failed)
		}
		return err
	})
	return changed, err
}

// errTaken is why a route cannot be added, or has no effect.
var errTaken = errors.New("the node already has another route to it; " +
	"check whether the range is used elsewhere, and give pods, services and nodes ranges of their own")

// takenIPv6 returns the prefixes to which the node has another IPv6 route than by our links. The kernel lets several
// be there, with different metrics, unlike routes of IPv4, which RouteAdd refuses.
func (w wanted) takenIPv6(h *netlink.Handle) (map[netip.Prefix]bool, error) {
	if !w.IPv6.Source.IsValid() {
		return nil, nil
	}
	ours := map[int]bool{}
	for _, p := range w.pairs {
		if l, err := find(h, p.link); err == nil && l != nil {
			ours[l.Attrs().Index] = true
		}
	}
	all, err := links.Dump(func() ([]netlink.Route, error) { return h.RouteList(nil, netlink.FAMILY_V6) })
	if err != nil {
		return nil, fmt.Errorf("list IPv6 routes: %w", err)
	}
	taken := map[netip.Prefix]bool{}
	for _, r := range all {
		if r.Dst != nil && r.Protocol != protocol && !ours[r.LinkIndex] {
			taken[links.PrefixOf(r.Dst)] = true
		}
	}
	return taken, nil
}

// routedHosts returns the link of each single address that our routes lead to.
func routedHosts(ns netns.NsHandle) (map[netip.Addr]string, error) {
	hosts := map[netip.Addr]string{}
	err := links.At(ns, func(h *netlink.Handle) error {
		have, err := ownRoutes(h)
		if err != nil {
			return err
		}
		for index, routes := range have {
			l, err := h.LinkByIndex(index)
			if errors.As(err, new(netlink.LinkNotFoundError)) {
				continue // it was removed just now, with its routes
			}
			if err != nil {
				return fmt.Errorf("find link %d: %w", index, err)
			}
			for to := range routes {
				if to.IsSingleIP() {
					hosts[to.Addr()] = l.Attrs().Name
				}
			}
		}
		return nil
	})
	return hosts, err
}

// ownRoutes returns our routes by the index of their link and by destination.
func ownRoutes(h *netlink.Handle) (map[int]map[netip.Prefix]netlink.Route, error) {
	all, err := links.Dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	own := map[int]map[netip.Prefix]netlink.Route{}
	for _, r := range all {
		if own[r.LinkIndex] == nil {
			own[r.LinkIndex] = map[netip.Prefix]netlink.Route{}
		}
		own[r.LinkIndex][links.PrefixOf(r.Dst)] = r
	}
	return own, nil
}

func (w wanted) same(is netlink.Route, r route) bool {
	via, _ := netip.AddrFromSlice(is.Gw)
	src, _ := netip.AddrFromSlice(is.Src)
	return via.Unmap() == r.via && src.Unmap() == w.family(r.to.Addr()).Source
}

func (w wanted) kernel(link int, r route) *netlink.Route {
	out := &netlink.Route{
		LinkIndex: link, Dst: links.IPNet(r.to), Src: w.family(r.to.Addr()).Source.AsSlice(), Protocol: protocol, Scope: netlink.SCOPE_LINK,
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
		return fmt.Errorf("add route to %s: %w", r.Dst, errTaken)
	case err != nil:
		return fmt.Errorf("add route to %s with source %s: %w", r.Dst, r.Src, err)
	}
	return nil
}
