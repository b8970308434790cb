package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// group is the interface group of the switch's ends of the pairs.
const group = 0xc0f

// exists reports whether both ends exist and are peers.
func (p pair) exists(ns netns.NsHandle) (is bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		own, err := find(h, p.link)
		if err != nil {
			return err
		}
		port, err := find(h, p.port)
		if err != nil || own == nil || port == nil {
			return err
		}
		if port.Attrs().Group != group {
			return fmt.Errorf("link %s was not created by coe-bridge: remove or rename it", p.port)
		}
		is = own.Attrs().ParentIndex == port.Attrs().Index
		return nil
	})
	return is, err
}

// pair returns a pair in the form of package links. Its own end is down until putLink.
func (n *Node) pair(w wanted, p pair) links.Pair {
	return links.Pair{
		Node: n.cfg.Netns, Pod: n.cfg.Netns, Port: p.port, Group: group, Name: p.link, MAC: p.mac, MTU: w.mtu,
		Settings: n.cfg.Settings, SoftwareChecksums: w.softwareChecksums,
	}
}

// ownPorts returns the names of the switch's ends of all our pairs.
func ownPorts(ns netns.NsHandle) (names []string, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		all, err := links.Dump(h.LinkList)
		for _, l := range all {
			if l.Attrs().Group == group && l.Type() == "veth" {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return names, nil
}

func removeLink(ns netns.NsHandle, port string) error { return links.DeleteOf(ns, port, group) }

// putLink sets the MTU of both ends of a pair and sets them up, and sets the MAC address of the
// node's end.
func (n *Node) putLink(ctx context.Context, w wanted, p pair) (changed bool, err error) {
	err = links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		for _, name := range []string{p.port, p.link} {
			l, err := h.LinkByName(name)
			if err != nil {
				return fmt.Errorf("find link %s: %w", name, err)
			}
			is := l.Attrs()
			setUp := func() error { return h.LinkSetUp(l) }
			if name == p.link {
				setUp = func() error { return n.setUp(ctx, w, p) }
			}
			for _, step := range []struct {
				holds bool
				do    func() error
			}{
				{is.MTU == w.mtu, func() error { return h.LinkSetMTU(l, w.mtu) }},
				{name == p.port || bytes.Equal(is.HardwareAddr, p.mac), func() error { return h.LinkSetHardwareAddr(l, p.mac) }},
				{is.Flags&net.FlagUp != 0, setUp},
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

// setUp sets the own end of a pair up. Pods can send to it, so it must not take a default route
// from router advertisements.
func (n *Node) setUp(ctx context.Context, w wanted, p pair) error {
	disabled := "0"
	if w.source.Is4() {
		disabled = "1"
	}
	for _, setting := range [][2]string{{"accept_ra", "0"}, {"disable_ipv6", disabled}} {
		_, err := n.cfg.Settings.Put(n.cfg.Netns, filepath.Join("ipv6/conf", p.link, setting[0]), setting[1])
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the kernel has no IPv6
			return err
		}
	}
	if p.loose {
		if _, err := n.cfg.Settings.Put(n.cfg.Netns, filepath.Join("ipv4/conf", p.link, "rp_filter"), "2"); err != nil {
			return err
		}
	}
	return links.Configure(ctx, n.pair(w, p))
}

// putAddress sets the address of the node's own end, and removes all others.
func putAddress(ns netns.NsHandle, p pair) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(p.link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", p.link, err)
		}
		all, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_V4) })
		if err != nil {
			return fmt.Errorf("list addresses of link %s: %w", p.link, err)
		}
		has := !p.address.IsValid()
		for _, a := range all {
			if links.PrefixOf(a.IPNet) == netip.PrefixFrom(p.address, 32) {
				has = true
				continue
			}
			changed = true
			if err := h.AddrDel(l, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("remove address %s of link %s: %w", a.IPNet, p.link, err)
			}
		}
		if has {
			return nil
		}
		changed = true
		if err := h.AddrReplace(l, &netlink.Addr{IPNet: links.IPNet(single(p.address))}); err != nil {
			return fmt.Errorf("add address %s to link %s: %w", p.address, p.link, err)
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
