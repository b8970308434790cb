// Package links creates the pair of links that connects a pod to its node. One end is in
// the pod's network namespace, with the pod's addresses and routes. The other end is in
// the node's namespace, for the switch. The package does not know the switch, and does not
// choose the values.
package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Group is the interface group of the node's ends of pod links.
const Group = 0xc0e

// Pair is a pod's pair of links.
type Pair struct {
	Node, Pod netns.NsHandle // the namespaces; the caller closes them
	// Port is the name of the node's end and of the switch's port.
	Port string
	// Group is the interface group of the node's end, set when it is created. 0 means the
	// constant Group, which Owned lists.
	Group uint32
	// Owner is written on the node's end, and returned by Owned; empty for none.
	Owner string
	// Name is the name of the pod's end, "eth0".
	Name      string
	MAC       net.HardwareAddr // of the pod's end
	MTU       int
	Addresses []netip.Prefix
	Routes    []Route // a route comes after the routes that it needs
	// Neighbours are the neighbours of the pod whose MAC addresses it need not ask for.
	Neighbours []Neighbour
	// Settings is where the network settings of the pod are written; empty means
	// DefaultSettings.
	Settings Settings
	// SoftwareChecksums lets the pod's kernel compute checksums. The userspace datapath
	// drops TCP packets without a complete checksum.
	SoftwareChecksums bool
}

// Route is a route through a link of a pod.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // zero: directly connected
}

// Neighbour is an address that is directly connected to a link of a pod.
type Neighbour struct {
	Address netip.Addr
	MAC     string
}

// DefaultRoutes returns a default route through gateway, with a route to the gateway if
// address does not cover it. It returns nil if gateway is not valid.
func DefaultRoutes(address netip.Prefix, gateway netip.Addr) []Route {
	if !gateway.IsValid() {
		return nil
	}
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	routes := []Route{{everywhere, gateway}}
	if !address.Contains(gateway) {
		routes = append([]Route{{Destination: netip.PrefixFrom(gateway, gateway.BitLen())}}, routes...)
	}
	return routes
}

// Add creates the pair and sets both ends up: Make and Configure. If a step fails or ctx
// ends, it removes the pair.
func Add(ctx context.Context, p Pair) error {
	if err := Make(p); err != nil {
		return err
	}
	if err := Configure(ctx, p); err != nil {
		return errors.Join(err, DeleteOf(p.Node, p.Port, p.group()))
	}
	return nil
}

// Make creates the pair. The node's end is complete, so that the switch can use it. The
// pod's end is down and has no addresses until Configure. A failed Make leaves nothing
// behind.
func Make(p Pair) error {
	link := netlink.NewVeth(netlink.LinkAttrs{Name: p.Port, MTU: p.MTU, Flags: net.FlagUp, Group: p.group()})
	link.PeerName, link.PeerNamespace = p.Name, netlink.NsFd(p.Pod)
	link.PeerHardwareAddr, link.PeerMTU = p.MAC, uint32(p.MTU)
	return At(p.Node, func(h *netlink.Handle) error {
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("add link %s with %s in the pod: %w", p.Port, p.Name, err)
		}
		if p.Owner == "" {
			return nil
		}
		// The kernel does not accept an alias with the new link.
		if err := h.LinkSetAlias(link, p.Owner); err != nil {
			return errors.Join(fmt.Errorf("write owner %s on link %s: %w", p.Owner, p.Port, err), h.LinkDel(link))
		}
		return nil
	})
}

// Configure sets the addresses and routes of the pod's end, and sets it up. It may be repeated
// for a pair without routes. If a step fails
// or ctx ends, the caller must delete the pair.
func Configure(ctx context.Context, p Pair) error {
	for _, step := range []func() error{p.setIPv6, p.turnOffloadOff, p.configure} {
		err := ctx.Err()
		if err == nil {
			err = step()
		}
		if err != nil {
			return fmt.Errorf("configure link %s: %w", p.Name, err)
		}
	}
	return nil
}

func (p Pair) group() uint32 {
	if p.Group != 0 {
		return p.Group
	}
	return Group
}

// Delete removes the pair of a pod by the node's end. A missing link is not an error. A
// link with another group stays, and is an error.
func Delete(node netns.NsHandle, port string) error { return DeleteOf(node, port, Group) }

// DeleteOf is Delete for a pair with another group.
func DeleteOf(node netns.NsHandle, port string, group uint32) error {
	return At(node, func(h *netlink.Handle) error {
		link, err := h.LinkByName(port)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find link %s: %w", port, err)
		}
		if link.Attrs().Group != group {
			return fmt.Errorf("delete link %s: it was not created by coe-bridge; remove or rename it", port)
		}
		if err := h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete link %s: %w", port, err)
		}
		return nil
	})
}

// configure sets the addresses and routes of the pod's end.
func (p Pair) configure() error {
	return At(p.Pod, func(h *netlink.Handle) error {
		link, err := h.LinkByName(p.Name)
		if err != nil {
			return fmt.Errorf("find the link: %w", err)
		}
		for _, a := range p.Addresses {
			if err := addAddress(h, link, a); err != nil {
				return err
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set the link up: %w", err)
		}
		for _, n := range p.Neighbours {
			if err := addNeighbour(h, link, n); err != nil {
				return err
			}
		}
		for _, r := range p.Routes {
			if err := addRoute(h, link, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func addAddress(h *netlink.Handle, link netlink.Link, a netip.Prefix) error {
	address := &netlink.Addr{IPNet: IPNet(a)}
	if a.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD // OVN ensures that the address is unique
	}
	if err := h.AddrReplace(link, address); err != nil {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	return nil
}

func addNeighbour(h *netlink.Handle, link netlink.Link, n Neighbour) error {
	mac, err := net.ParseMAC(n.MAC)
	if err == nil {
		err = h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: family(n.Address), State: netlink.NUD_PERMANENT, IP: n.Address.AsSlice(), HardwareAddr: mac,
		})
	}
	if err != nil {
		return fmt.Errorf("add neighbour %s with MAC address %s: %w", n.Address, n.MAC, err)
	}
	return nil
}

// Protocol marks the routes of coe-bridge. No routing daemon uses this number.
const Protocol = 206

// addRoute fails if the pod already has a route to that destination. But several links can be directly connected to one address: two links of
// a pod can have the same gateway.
func addRoute(h *netlink.Handle, link netlink.Link, r Route) error {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: IPNet(r.Destination), Protocol: Protocol}
	add, by := h.RouteAdd, ""
	switch {
	case r.Gateway.IsValid():
		route.Gw, by = r.Gateway.AsSlice(), " by "+r.Gateway.String()
	case r.Destination.IsSingleIP():
		route.Scope, add = unix.RT_SCOPE_LINK, h.RouteAppend
	default:
		route.Scope = unix.RT_SCOPE_LINK
	}
	if err := add(route); err != nil {
		return fmt.Errorf("add route to %s%s: %w", r.Destination, by, err)
	}
	return nil
}

// IPNet converts a prefix for netlink.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// At calls f with a netlink handle in a network namespace.
func At(ns netns.NsHandle, f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return f(h)
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
