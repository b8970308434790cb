package node

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// announceEvery is how often the addresses of the node are announced, while the bridge is heard: a neighbour can have learned
// another node.
const announceEvery = 10 * time.Second

// egressScope marks the egress addresses on NICs. The kernel takes no address of such a scope as the source of the
// node's own packets.
const egressScope = 206

// errNotHeard is why the node does not add an egress address.
var errNotHeard = errors.New("the bridge has not said since the start of the agent that the node holds it")

// nic is a NIC that can have an egress address.
type nic struct {
	netlink.Link
	egress map[netip.Addr]netlink.Addr // that it has
}

// egressAddresses names the egress addresses on NICs among what a check has changed.
const egressAddresses = "egress addresses"

// takeLost takes the egress addresses away that the node does not own, from its NICs. It comes before everything else, and needs only the kernel:
// another node can have the address already while the switch does not answer. It also comes before join, which removes the rule that keeps the node
// from answering there.
func (n *Node) takeLost(part *uplink.Egress) (changed bool, err error) {
	var w wanted
	if n.looked && !n.owns || part != nil && w.addEgress(part) != nil { // wanted returns this error
		return false, nil
	}
	err = links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		nics, at, err := nicsOf(h)
		if err != nil {
			return err
		}
		owned, _ := ownedOf(w.egress, at)
		changed, err = takeOthers(h, nics, owned)
		n.looked, n.owns = true, err != nil || len(owned) > 0
		return err
	})
	return changed, err
}

// ownedOf returns the NICs for the addresses that the node owns: an address belongs to the NIC whose network has it. unfit are
// the addresses of the ways that belong to none.
func ownedOf(ways []egressWay, at func(netip.Addr) *nic) (owned map[netip.Addr]*nic, unfit []netip.Addr) {
	owned = map[netip.Addr]*nic{}
	for _, w := range ways {
		to := at(w.address)
		switch {
		case to == nil:
			unfit = append(unfit, w.address)
		case w.owner:
			owned[w.address] = to
		}
	}
	return owned, unfit
}

// takeOthers takes all egress addresses away from NICs, except those that are owned there.
func takeOthers(h *netlink.Handle, nics []*nic, owned map[netip.Addr]*nic) (changed bool, err error) {
	for _, one := range nics {
		for address, is := range one.egress {
			if owned[address] == one {
				continue
			}
			changed = true
			if failed := h.AddrDel(one.Link, &is); failed != nil && !errors.Is(failed, unix.EADDRNOTAVAIL) {
				err = errors.Join(err, fmt.Errorf("remove egress address %s of link %s: %w", address, one.Attrs().Name, failed))
			}
		}
	}
	return changed, err
}

// putEgress gives the NICs of the node the addresses that the node owns, and takes all other egress addresses away. heard is when
// the bridge was last heard, zero for not yet: then the node may have lost an address meanwhile. It keeps the address, but neither
// adds nor announces it, because neighbours would send to this node instead of the new one.
func (n *Node) putEgress(ways []egressWay, heard time.Time, o *outcome) {
	ports := map[netip.Addr]string{}
	for _, w := range ways {
		ports[w.address] = w.port
	}
	var again []func()
	err := links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		nics, at, err := nicsOf(h)
		if err != nil {
			return err
		}
		var owned map[netip.Addr]*nic
		owned, o.unfit = ownedOf(ways, at)
		taken, err := takeOthers(h, nics, owned)
		o.note("", egressAddresses, taken, err)
		due := time.Since(heard) < freshFor && time.Since(n.announced) >= announceEvery
		if due {
			n.announced = time.Now()
		}
		n.owns = len(owned) > 0
		has := len(owned)
		for address, to := range owned {
			_, there := to.egress[address]
			if !there {
				failed := errNotHeard
				if !heard.IsZero() {
					failed = h.AddrReplace(to.Link, &netlink.Addr{IPNet: links.IPNet(single(address)), Scope: egressScope})
				}
				if failed != nil {
					failed = fmt.Errorf("add egress address %s to link %s: %w", address, to.Attrs().Name, failed)
					has--
				}
				if o.note(ports[address], egressAddresses, failed == nil, failed); failed != nil {
					continue
				}
			}
			if !there || due {
				again = append(again, func() {
					o.note(ports[address], egressAddresses, false, links.Announce(n.cfg.Netns, to.Attrs().Name, to.Attrs().HardwareAddr, []netip.Addr{address}))
				})
			}
		}
		n.metrics.egressOwned.Set(float64(has))
		return nil
	})
	o.note("", egressAddresses, false, err)
	for _, announce := range again {
		announce()
	}
}

// nicsOf returns the links of the node that are not of the pod network, and a function that returns the one whose network
// has an address.
func nicsOf(h *netlink.Handle) (all []*nic, at func(netip.Addr) *nic, err error) {
	found, err := links.Dump(h.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list links: %w", err)
	}
	addresses, err := links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	byIndex := map[int]*nic{}
	for _, l := range found {
		name := l.Attrs().Name
		if name != linkName && !strings.HasPrefix(name, egressLink) && l.Attrs().Flags&net.FlagLoopback == 0 {
			one := &nic{l, map[netip.Addr]netlink.Addr{}}
			all, byIndex[l.Attrs().Index] = append(all, one), one
		}
	}
	type network struct {
		netip.Prefix
		of *nic
	}
	var networks []network
	for _, a := range addresses {
		one, p := byIndex[a.LinkIndex], links.PrefixOf(a.IPNet)
		switch {
		case one == nil:
		case a.Scope == egressScope && p.IsSingleIP():
			one.egress[p.Addr()] = a
		case !p.IsSingleIP() && a.Scope == int(netlink.SCOPE_UNIVERSE):
			networks = append(networks, network{p.Masked(), one})
		}
	}
	slices.SortStableFunc(networks, func(a, b network) int { return b.Bits() - a.Bits() })
	return all, func(addr netip.Addr) *nic {
		for _, n := range networks {
			if n.Contains(addr) {
				return n.of
			}
		}
		return nil
	}, nil
}
