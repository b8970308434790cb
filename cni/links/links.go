// Package links makes the pair of links that joins a pod to its node: one end in
// the pod's network namespace with the pod's addresses and routes, the other in the
// node's, for the switch to take. It knows neither the switch nor who chose the
// values.
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

// Group marks the node's ends of pods' links.
const Group = 0xc0e

// Pair is a pod's pair of links.
type Pair struct {
	Node, Pod netns.NsHandle // the namespaces; the caller's to close
	// Port is the name of the node's end, which is that of the switch's port.
	Port string
	// Group marks the node's end, from the moment on at which it is there; 0 for the
	// one that pods' links have, and Owned lists.
	Group uint32
	// Owner is what Owned tells of the node's end; empty for nothing.
	Owner string
	// Name is the name of the pod's end, "eth0".
	Name      string
	MAC       net.HardwareAddr // of the pod's end
	MTU       int
	Addresses []netip.Prefix
	Routes    []Route // in the order in which they can be made
	// Settings is where the settings of the pod's network are written; empty for
	// DefaultSettings.
	Settings Settings
	// SoftwareChecksums has the pod's kernel compute checksums: the userspace datapath
	// drops TCP whose checksums were left to the card.
	SoftwareChecksums bool
}

// Route is a route through a pod's link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // zero: reached directly
}

// DefaultRoutes lead everywhere through a gateway, on the link even where address
// does not cover it; none without a gateway.
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

// Add makes the pair and brings both ends up: Make and Configure. Where a step fails, or
// ctx ends, what was made before is removed.
func Add(ctx context.Context, p Pair) error {
	if err := Make(p); err != nil {
		return err
	}
	if err := Configure(ctx, p); err != nil {
		return errors.Join(err, DeleteOf(p.Node, p.Port, p.group()))
	}
	return nil
}

// Make makes the pair: the node's end as it has to be, so that a switch may take it, and
// the pod's, which is down and has no addresses before Configure. An error leaves nothing
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
		// The kernel does not take it with the link.
		if err := h.LinkSetAlias(link, p.Owner); err != nil {
			return errors.Join(fmt.Errorf("write owner %s on link %s: %w", p.Owner, p.Port, err), h.LinkDel(link))
		}
		return nil
	})
}

// Configure gives the pod's end of a pair its addresses and routes, and brings it up.
// Where a step fails, or ctx ends, the pair stays with what it has by then: it is to be
// deleted.
func Configure(ctx context.Context, p Pair) error {
	for _, step := range []func() error{p.allowIPv6, p.configure, p.turnOffloadOff} {
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

// Delete removes a pair of a pod by its node's end; one that is not there is well. A
// link of somebody else stays, and is an error.
func Delete(node netns.NsHandle, port string) error { return DeleteOf(node, port, Group) }

// DeleteOf is Delete of a pair that has a Group.
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
			return fmt.Errorf("delete link %s: it was made by somebody else; remove or rename it", port)
		}
		if err := h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete link %s: %w", port, err)
		}
		return nil
	})
}

// configure gives the pod's end its addresses and routes.
func (p Pair) configure() error {
	return At(p.Pod, func(h *netlink.Handle) error {
		link, err := h.LinkByName(p.Name)
		if err != nil {
			return fmt.Errorf("find it: %w", err)
		}
		for _, a := range p.Addresses {
			if err := addAddress(h, link, a); err != nil {
				return err
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set it up: %w", err)
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
		address.Flags = unix.IFA_F_NODAD // OVN lets nobody else have it
	}
	if err := h.AddrReplace(link, address); err != nil {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	return nil
}

// addRoute fails where the pod has that route already: it is somebody else's.
func addRoute(h *netlink.Handle, link netlink.Link, r Route) error {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: IPNet(r.Destination)}
	if r.Gateway.IsValid() {
		route.Gw = r.Gateway.AsSlice()
	} else {
		route.Scope = unix.RT_SCOPE_LINK
	}
	if err := h.RouteAdd(route); err != nil {
		return fmt.Errorf("add route to %s by %s: %w", r.Destination, r.Gateway, err)
	}
	return nil
}

// IPNet is a prefix as netlink takes it.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// At calls f with a netlink handle in a namespace.
func At(ns netns.NsHandle, f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return f(h)
}
