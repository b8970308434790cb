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
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
)

// group is the interface group of the switch's ends of the pairs.
const group = noderules.Group

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

// ownPorts returns the switch's ends of all our pairs, with the node's own ends; empty for an end that does not exist.
func ownPorts(ns netns.NsHandle) (ends map[string]string, err error) {
	ends = map[string]string{}
	err = links.At(ns, func(h *netlink.Handle) error {
		all, err := links.Dump(h.LinkList)
		names := map[int]string{}
		for _, l := range all {
			names[l.Attrs().Index] = l.Attrs().Name
		}
		for _, l := range all {
			if is := l.Attrs(); is.Group == group && l.Type() == "veth" {
				ends[is.Name] = names[is.ParentIndex]
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return ends, nil
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
				setUp = func() error { return links.Configure(ctx, n.pair(w, p)) }
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

// putSettings sets the settings of the own end of a pair. Pods can send to it, so it must not take a default route
// from router advertisements. OVN and the bridge ensure that its addresses are unique.
func (n *Node) putSettings(p pair) (changed bool, err error) {
	disabled := "1"
	if p.ipv6 {
		disabled = "0"
	}
	for _, setting := range [][2]string{{"accept_ra", "0"}, {"accept_dad", "0"}, {"disable_ipv6", disabled}} {
		put, err := n.cfg.Settings.Put(n.cfg.Netns, filepath.Join("ipv6/conf", p.link, setting[0]), setting[1])
		if err != nil && (p.ipv6 || !errors.Is(err, fs.ErrNotExist)) { // else the kernel has no IPv6
			return changed, err
		}
		changed = changed || put
	}
	if p.filter == "" {
		return changed, nil
	}
	put, err := n.cfg.Settings.Put(n.cfg.Netns, filepath.Join("ipv4/conf", p.link, "rp_filter"), p.filter)
	return changed || put, err
}

// putAddress sets the addresses of the node's own end, and removes all others except link-local IPv6 addresses.
func putAddress(ns netns.NsHandle, p pair) (changed bool, err error) {
	err = links.At(ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(p.link)
		if err != nil {
			return fmt.Errorf("find link %s: %w", p.link, err)
		}
		all, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list addresses of link %s: %w", p.link, err)
		}
		missing := slices.Clone(p.addresses)
		if p.ipv6 { // the kernel needs it to find neighbours, and does not always make one
			missing = append(missing, linkLocal(p.mac))
		}
		for _, a := range all {
			is := links.PrefixOf(a.IPNet)
			if i := slices.Index(missing, is.Addr()); i >= 0 && is == prefixOf(is.Addr()) {
				missing = slices.Delete(missing, i, i+1)
				continue
			}
			if is.Addr().Is6() && is.Addr().IsLinkLocalUnicast() {
				continue
			}
			changed = true
			if err := h.AddrDel(l, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("remove address %s of link %s: %w", a.IPNet, p.link, err)
			}
		}
		for _, a := range missing {
			changed = true
			address := &netlink.Addr{IPNet: links.IPNet(prefixOf(a))}
			if a.Is6() {
				address.Flags = unix.IFA_F_NODAD // the bridge ensures that the address is unique
			}
			if err := h.AddrReplace(l, address); err != nil {
				return fmt.Errorf("add address %s to link %s: %w", a, p.link, err)
			}
		}
		return nil
	})
	return changed, err
}

// prefixOf returns an address of a link with the length of its prefix.
func prefixOf(a netip.Addr) netip.Prefix {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return netip.PrefixFrom(a, 64)
	}
	return single(a)
}

// linkLocal returns the link-local IPv6 address of a MAC address (RFC 4291, appendix A).
func linkLocal(m net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// allowForwarding enables forwarding of pods' traffic in the node's kernel.
func (n *Node) allowForwarding(w wanted) (changed bool, err error) {
	if changed, err = n.cfg.Settings.Put(n.cfg.Netns, "ipv4/ip_forward", "1"); err != nil {
		return changed, fmt.Errorf("enable IP forwarding: %w", err)
	}
	if !w.IPv6.Source.IsValid() || w.Isolated { // nodes lead isolated pods with IPv4 only
		return changed, nil
	}
	is, err := n.cfg.Settings.Get(n.cfg.Netns, forwardingIPv6)
	n.forwards = n.forwards || err == nil && is != "1"
	if err == nil && n.forwards {
		err = n.keepAdvertisements()
	}
	put := false
	if err == nil {
		put, err = n.cfg.Settings.Put(n.cfg.Netns, forwardingIPv6, "1")
	}
	if err != nil {
		return changed || put, fmt.Errorf("enable IPv6 forwarding: %w", err)
	}
	return changed || put, nil
}

// strictFilter is the setting of all links that must not be 1 where a node leads isolated namespaces to services. The kernel takes the larger one of
// it and the link's, and would drop answers of endpoints whose addresses are not routed to the link.
const strictFilter = "ipv4/conf/all/rp_filter"

// filtersStrictly reports whether strictFilter is 1. The agent does not change a setting of all links.
func (n *Node) filtersStrictly() bool {
	is, err := n.cfg.Settings.Get(n.cfg.Netns, strictFilter)
	return err == nil && is == "1"
}

// forwardingIPv6 is the setting that lets the kernel forward IPv6 packets. It has no effect for a single link.
const forwardingIPv6 = "ipv6/conf/all/forwarding"

// keepAdvertisements lets the links of the node that accept router advertisements accept them although the node forwards.
// Otherwise the kernel would ignore them from then on, and remove the default routes that came from them.
func (n *Node) keepAdvertisements() error {
	var names, kept []string
	err := links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		all, err := links.Dump(h.LinkList)
		for _, l := range all {
			if g := l.Attrs().Group; g != group && g != links.Group && l.Attrs().Flags&net.FlagLoopback == 0 {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, name := range names {
		setting := filepath.Join("ipv6/conf", name, "accept_ra")
		is, err := n.cfg.Settings.Get(n.cfg.Netns, setting)
		if errors.Is(err, fs.ErrNotExist) || err == nil && is != "1" {
			continue
		}
		if err == nil {
			_, err = n.cfg.Settings.Put(n.cfg.Netns, setting, "2")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		kept = append(kept, name)
	}
	if len(kept) > 0 {
		n.log.Info("the node forwards IPv6 packets now; set accept_ra to 2, so that these links still accept router advertisements", "links", kept)
	}
	return nil
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
