package links

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrNotFound says that there is no such link.
var ErrNotFound = errors.New("there is no such link")

// Link is a link as it is.
type Link struct {
	MAC       net.HardwareAddr
	MTU       int
	Up        bool
	Addresses []netip.Prefix
	Routes    []Route // through the link
}

// Look reads a link. Where there is none of that name the error is ErrNotFound.
func Look(ns netns.NsHandle, name string) (Link, error) {
	return look(ns, name, func(h *netlink.Handle, link netlink.Link, out *Link) (err error) {
		if out.Addresses, err = addresses(h, link); err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		if out.Routes, err = routes(h, link); err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		return nil
	})
}

// Glance is Look without addresses and routes: those of a node with many links take long
// to list.
func Glance(ns netns.NsHandle, name string) (Link, error) {
	return look(ns, name, func(*netlink.Handle, netlink.Link, *Link) error { return nil })
}

// look reads a link, and by more what else is wanted of it.
func look(ns netns.NsHandle, name string, more func(*netlink.Handle, netlink.Link, *Link) error) (out Link, err error) {
	err = At(ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		is := link.Attrs()
		out.MAC, out.MTU, out.Up = is.HardwareAddr, is.MTU, is.Flags&net.FlagUp != 0
		return more(h, link, &out)
	})
	if err != nil {
		return out, fmt.Errorf("look at link %s: %w", name, err)
	}
	return out, nil
}

// Owned are the node's ends that this package has made, by name, and what they say of
// their owner.
func Owned(node netns.NsHandle) (map[string]string, error) {
	owned := map[string]string{}
	err := At(node, func(h *netlink.Handle) error {
		all, err := Dump(h.LinkList)
		for _, link := range all {
			if is := link.Attrs(); is.Group == Group && link.Type() == "veth" {
				owned[is.Name] = is.Alias
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return owned, nil
}

// MTUOf is the MTU of the link that has an address.
func MTUOf(node netns.NsHandle, address netip.Addr) (int, error) {
	mtu := 0
	err := At(node, func(h *netlink.Handle) error {
		all, err := Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return err
		}
		for _, a := range all {
			if !a.IP.Equal(address.AsSlice()) {
				continue
			}
			link, err := h.LinkByIndex(a.LinkIndex)
			if err == nil {
				mtu = link.Attrs().MTU
			}
			return err
		}
		return errors.New("no link has it")
	})
	if err != nil {
		return 0, fmt.Errorf("find the link with address %s: %w", address, err)
	}
	return mtu, nil
}

func addresses(h *netlink.Handle, link netlink.Link) ([]netip.Prefix, error) {
	all, err := Dump(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
	var out []netip.Prefix
	for _, a := range all {
		if a.Scope != unix.RT_SCOPE_LINK {
			out = append(out, PrefixOf(a.IPNet))
		}
	}
	return out, err
}

func routes(h *netlink.Handle, link netlink.Link) ([]Route, error) {
	all, err := Dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
	})
	var out []Route
	for _, r := range all {
		gateway, _ := netip.AddrFromSlice(r.Gw)
		out = append(out, Route{PrefixOf(r.Dst), gateway.Unmap()})
	}
	return out, err
}

// PrefixOf is what IPNet makes, back again; not valid where netlink says nothing.
func PrefixOf(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}

// dumpTries is how often a dump is begun, since changes meanwhile make it incomplete.
const dumpTries = 10

// Dump lists what the kernel has, whole.
func Dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
