package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// minIPv6 is the smallest MTU of links with IPv6 (RFC 8200).
const minIPv6 = 1280

// ipv6 checks what the node needs to connect to pods by IPv6.
func (c *Config) ipv6(context.Context) (string, error) {
	place, err := uplink.SavedPlace(c.StateDir)
	switch {
	case err != nil:
		return "", unknown(errors.New("the state directory must be readable first"))
	case place == nil || place.Isolated || !place.IPv6.Address.IsValid():
		return "the bridge has given this node no IPv6 address in the pod network (--node-network of the bridge)", nil
	}
	forwards, err := c.Settings.Get(c.Node, "ipv6/conf/all/forwarding")
	if errors.Is(err, fs.ErrNotExist) {
		return "", warning(errors.New("the kernel has no IPv6, so the node connects to pods by IPv4 only"), "enable IPv6: remove ipv6.disable=1 from the command line of the kernel")
	}
	if err != nil {
		return "", fmt.Errorf("read IPv6 forwarding: %w", err)
	}
	if mtu, err := links.MTUOf(c.Node, place.Address); err != nil {
		return "", unknown(errors.New("the node must have its management port first"))
	} else if mtu < minIPv6 {
		return "", warning(fmt.Errorf("links have the MTU %d, and IPv6 needs %d, so the node connects to pods by IPv4 only", mtu, minIPv6), "give the links of the tunnels a larger MTU")
	}
	if strings.TrimSpace(forwards) != "1" {
		return "", warning(errors.New("the kernel does not forward IPv6 packets"), "start the agent, which sets net.ipv6.conf.all.forwarding; if it runs, find out what sets it to 0")
	}
	if has, err := c.hasIPv6Table(); err != nil {
		return "", err
	} else if !has {
		return "", warning(errors.New("nftables has no table ip6 coe-bridge"), "start the agent, which writes it; if it runs, check its log, and that the kernel has nf_tables with IPv6, fib and nat")
	}
	deaf, err := c.ignoresAdvertisements()
	if err != nil {
		return "", err
	}
	found := fmt.Sprintf("this node is at %s", place.IPv6.Address)
	if len(deaf) > 0 {
		found += fmt.Sprintf("; %s ignore router advertisements, because the node forwards: set accept_ra to 2 if it gets routes from them", strings.Join(deaf, ", "))
	}
	return found, nil
}

// hasIPv6Table reports whether the agent has written the rules of IPv6.
func (c *Config) hasIPv6Table() (bool, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(c.Node)))
	if err != nil {
		return false, fmt.Errorf("open nftables: %w", err)
	}
	all, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv6)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	return slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == "coe-bridge" }), nil
}

// ignoresAdvertisements returns the links with a global IPv6 address for which Linux ignores router advertisements on a node
// that forwards, although the setting says otherwise.
func (c *Config) ignoresAdvertisements() (all []string, err error) {
	err = links.At(c.Node, func(h *netlink.Handle) error {
		addresses, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V6) })
		if err != nil {
			return err
		}
		for _, a := range addresses {
			link, err := h.LinkByIndex(a.LinkIndex)
			if err != nil || !a.IP.IsGlobalUnicast() {
				continue
			}
			name := link.Attrs().Name
			if name == "lo" || name == "coe0" || slices.Contains(all, name) {
				continue
			}
			if is, err := c.Settings.Get(c.Node, filepath.Join("ipv6/conf", name, "accept_ra")); err == nil && strings.TrimSpace(is) == "1" {
				all = append(all, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list IPv6 addresses: %w", err)
	}
	return all, nil
}
