// Package links makes the pair of links that joins a pod to its node: one end in
// the pod's network namespace with the pod's address and route, the other in the
// node's, for the switch to take. It knows neither the switch nor who chose the
// values.
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

// Pair is a pod's pair of links.
type Pair struct {
	Node, Pod netns.NsHandle // the namespaces; the caller's to close
	// Port is the name of the node's end, which is that of the switch's port.
	Port string
	// Name is the name of the pod's end, "eth0".
	Name    string
	MAC     net.HardwareAddr // of the pod's end
	MTU     int
	Address netip.Prefix
	// Gateway is the next hop of the pod's default route, on the link even where
	// Address does not cover it; zero for no route.
	Gateway netip.Addr
}

// Add makes the pair and brings both ends up. Where a step fails, what was made
// before it is removed.
func Add(p Pair) error {
	if err := addVeth(p); err != nil {
		return err
	}
	if err := at(p.Pod, p.configure); err != nil {
		return errors.Join(fmt.Errorf("configure link %s: %w", p.Name, err), Delete(p.Node, p.Port))
	}
	return nil
}

// Delete removes a pair by its node's end; one that is not there is well.
func Delete(node netns.NsHandle, port string) error {
	return at(node, func(h *netlink.Handle) error {
		link, err := h.LinkByName(port)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find link %s: %w", port, err)
		}
		if err := h.LinkDel(link); err != nil {
			return fmt.Errorf("delete link %s: %w", port, err)
		}
		return nil
	})
}

func addVeth(p Pair) error {
	link := netlink.NewVeth(netlink.LinkAttrs{Name: p.Port, MTU: p.MTU, Flags: net.FlagUp})
	link.PeerName, link.PeerNamespace = p.Name, netlink.NsFd(p.Pod)
	link.PeerHardwareAddr, link.PeerMTU = p.MAC, uint32(p.MTU)
	return at(p.Node, func(h *netlink.Handle) error {
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("add link %s: %w", p.Port, err)
		}
		return nil
	})
}

// configure gives the pod's end its address and route.
func (p Pair) configure(h *netlink.Handle) error {
	link, err := h.LinkByName(p.Name)
	if err != nil {
		return fmt.Errorf("find it: %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: p.Address.Addr().AsSlice(), Mask: net.CIDRMask(p.Address.Bits(), p.Address.Addr().BitLen()),
	}}
	if p.Address.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD // OVN lets nobody else have it
	}
	if err := h.AddrReplace(link, address); err != nil {
		return fmt.Errorf("add address %s: %w", p.Address, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	if !p.Gateway.IsValid() {
		return nil
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.Gateway.AsSlice()}
	if !p.Address.Contains(p.Gateway) {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("add route by %s: %w", p.Gateway, err)
	}
	return nil
}

// at calls f with a netlink handle in a namespace.
func at(ns netns.NsHandle, f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return f(h)
}
