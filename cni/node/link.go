package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// group is the interface group of the switch's end of the pair.
const group = 0xc0f

// isPair reports whether both ends exist and are peers.
func isPair(ns netns.NsHandle) (is bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		own, err := find(h, linkName)
		if err != nil {
			return err
		}
		port, err := find(h, portName)
		if err != nil || own == nil || port == nil {
			return err
		}
		if port.Attrs().Group != group {
			return fmt.Errorf("link %s was not created by coe-bridge: remove or rename it", portName)
		}
		is = own.Attrs().ParentIndex == port.Attrs().Index
		return nil
	})
	return is, err
}

// addLink creates the pair.
func addLink(ctx context.Context, ns netns.NsHandle, w wanted) error {
	return links.Add(ctx, links.Pair{
		Node: ns, Pod: ns, Port: portName, Group: group, Name: linkName, MAC: w.mac, MTU: w.mtu, SoftwareChecksums: w.softwareChecksums,
	})
}

func removeLink(ns netns.NsHandle) error { return links.DeleteOf(ns, portName, group) }

func linkThere(ns netns.NsHandle) (there bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		l, err := find(h, portName)
		there = l != nil
		return err
	})
	return there, err
}

// putLink sets the MTU of both ends and sets them up, and sets the MAC address of the
// node's end.
func putLink(ns netns.NsHandle, w wanted) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		for _, name := range []string{portName, linkName} {
			l, err := h.LinkByName(name)
			if err != nil {
				return fmt.Errorf("find link %s: %w", name, err)
			}
			is := l.Attrs()
			for _, step := range []struct {
				holds bool
				do    func() error
			}{
				{is.MTU == w.mtu, func() error { return h.LinkSetMTU(l, w.mtu) }},
				{name == portName || bytes.Equal(is.HardwareAddr, w.mac), func() error { return h.LinkSetHardwareAddr(l, w.mac) }},
				{is.Flags&net.FlagUp != 0, func() error { return h.LinkSetUp(l) }},
			} {
				if step.holds {
					continue
				}
				changed = true
				if err := step.do(); err != nil {
					return fmt.Errorf("set up link %s with MTU %d: %w", name, w.mtu, err)
				}
			}
		}
		return nil
	})
	return changed, err
}

// putAddresses sets the address of the node's link, and removes all others.
func putAddresses(ns netns.NsHandle, w wanted) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(linkName)
		if err != nil {
			return fmt.Errorf("find link %s: %w", linkName, err)
		}
		all, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_V4) })
		if err != nil {
			return fmt.Errorf("list addresses of link %s: %w", linkName, err)
		}
		has := false
		for _, a := range all {
			if links.PrefixOf(a.IPNet) == netip.PrefixFrom(w.address, 32) {
				has = true
				continue
			}
			changed = true
			if err := h.AddrDel(l, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("remove address %s of link %s: %w", a.IPNet, linkName, err)
			}
		}
		if has {
			return nil
		}
		changed = true
		if err := h.AddrReplace(l, &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(w.address, 32))}); err != nil {
			return fmt.Errorf("add address %s to link %s: %w", w.address, linkName, err)
		}
		return nil
	})
	return changed, err
}

// allowForwarding enables forwarding of pods' traffic in the node's kernel.
func (n *Node) allowForwarding() (changed bool, err error) {
	if changed, err = n.cfg.Settings.Put(n.cfg.Netns, "ipv4/ip_forward", "1"); err != nil {
		return changed, fmt.Errorf("enable IP forwarding: %w", err)
	}
	return changed, nil
}

// find returns a link by its name, or nil if there is none.
func find(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	return l, nil
}
