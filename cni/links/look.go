package links

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrNotFound is returned if a link does not exist.
var ErrNotFound = errors.New("no such link")

// Link is the state of a link in the kernel.
type Link struct {
	MAC       net.HardwareAddr
	MTU       int
	Up        bool
	Addresses []netip.Prefix
	Routes    []Route // through the link
}

// Look reads a link. The error is ErrNotFound if no link has that name.
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

// Glance is Look without addresses and routes, which take long to list on a node with many
// links.
func Glance(ns netns.NsHandle, name string) (Link, error) {
	return look(ns, name, func(*netlink.Handle, netlink.Link, *Link) error { return nil })
}

// look reads a link, and calls more to read the rest.
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

// Received returns how many packets each link of a network namespace has received since it was created, by its name.
func Received(ns netns.NsHandle) (map[string]uint64, error) {
	received := map[string]uint64{}
	err := At(ns, func(h *netlink.Handle) error {
		all, err := Dump(h.LinkList)
		for _, link := range all {
			if is := link.Attrs(); is.Statistics != nil {
				received[is.Name] = is.Statistics.RxPackets
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count the packets of links: %w", err)
	}
	return received, nil
}

// Owned returns the node's ends that this package has created: their owners by link name.
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

// Addresses returns the addresses of the links of a node.
func Addresses(node netns.NsHandle) (all []netip.Addr, err error) {
	err = At(node, func(h *netlink.Handle) error {
		list, err := Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
		for _, a := range list {
			all = append(all, PrefixOf(a.IPNet).Addr())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the node: %w", err)
	}
	return all, nil
}

// HasAddress reports whether a link of a node has an address.
func HasAddress(node netns.NsHandle, address netip.Addr) (bool, error) {
	all, err := Addresses(node)
	return slices.Contains(all, address), err
}

// MTUOf returns the MTU of the link that has an address.
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
		return errors.New("no link has this address")
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
	all, err := routesBy(h, link, unix.RTPROT_UNSPEC)
	var out []Route
	for _, r := range all {
		gateway, _ := netip.AddrFromSlice(r.Gw)
		out = append(out, Route{PrefixOf(r.Dst), gateway.Unmap()})
	}
	return out, err
}

// maxRoutes is how many routes by a link of a pod are read at most. A pod that may change its network can have millions.
const maxRoutes = 10_000

// routesBy lists the routes of the main table by a link of a pod. A protocol other than RTPROT_UNSPEC selects further. The kernel
// selects them, because the pod can have any number of other routes. It is an error if there are too many, and h is closed then.
func routesBy(h *netlink.Handle, link netlink.Link, protocol netlink.RouteProtocol) ([]netlink.Route, error) {
	_ = h.SetStrictCheck(true) // kernels before 4.20 send all routes
	defer func() { _ = h.SetStrictCheck(false) }()
	of := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN, Protocol: protocol}
	mask := netlink.RT_FILTER_OIF | netlink.RT_FILTER_TABLE
	if protocol != unix.RTPROT_UNSPEC {
		mask |= netlink.RT_FILTER_PROTOCOL
	}
	return Dump(func() (all []netlink.Route, err error) {
		tooMany := false
		err = h.RouteListFilteredIter(netlink.FAMILY_ALL, of, mask, func(r netlink.Route) bool {
			if tooMany = len(all) == maxRoutes; tooMany {
				h.Close() // otherwise the rest would be read, and ignored
				return false
			}
			all = append(all, r)
			return true
		})
		if tooMany { // also without an error: h would be in another namespace now
			return nil, fmt.Errorf("it has more than %d routes by the link", maxRoutes)
		}
		return all, err
	})
}

// PrefixOf converts a prefix from netlink. It is not valid if n has no address.
func PrefixOf(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}

// dumpTries limits the attempts of a dump: a change in the kernel interrupts it.
const dumpTries = 10

// Dump lists kernel objects, and repeats the listing if a change has interrupted it.
func Dump[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
