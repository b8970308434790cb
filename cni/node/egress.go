package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// egressWay is an egress address that packets get which come in by a link. Only pods that are selected send there, so
// the node need not know them, and nothing else may happen to their packets.
type egressWay struct {
	link    string
	port    string // the switch's end
	address netip.Addr
	owner   bool // a NIC of the node has the address
}

// announceEvery is how often the addresses of the node are announced: a neighbour can have learned the former node.
const announceEvery = 10 * time.Second

// egressScope marks the egress addresses on NICs. The kernel takes no address of such a scope as the source of the
// node's own packets.
const egressScope = 206

// addEgress adds a pair of links for each port of the node in egress addresses.
func (w *wanted) addEgress(part *uplink.Egress) error {
	for _, a := range part.Addresses {
		mac, err := net.ParseMAC(a.MAC)
		if err != nil || !a.NextHop.Is4() || !a.Egress.Is4() {
			return fmt.Errorf("egress-changed from the bridge: port %q has an invalid address", a.Name)
		}
		suffix := fmt.Sprintf("%d-%d", a.Number, a.NextHop.As4()[3]&7)
		p := pair{link: egressLink + suffix, port: egressPort + suffix, iface: a.Name, address: a.NextHop, mac: mac, loose: true}
		w.pairs = append(w.pairs, p)
		w.egress = append(w.egress, egressWay{p.link, p.port, a.Egress, a.Owner})
	}
	slices.SortFunc(w.egress, func(a, b egressWay) int { return strings.Compare(a.link, b.link) })
	return nil
}

// egressChains returns the chains of egress addresses, which are there while the node has some.
func (w wanted) egressChains() []*nftables.Chain {
	if len(w.egress) == 0 {
		return nil
	}
	return []*nftables.Chain{
		filter(table4(), egressHere, nftables.ChainHookInput),
		{
			Table: table4(), Name: egressOnly, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 2),
		},
	}
}

// egressRules returns the rules for the links of egress addresses:
//
// way-out      source NAT to the egress address.
// egress-only  drops what leaves without it after all: packets that the kernel does not track, and packets of connections
//
//	that began with another source.
//
// no-return    rejects packets that are routed back to the pod network, except by a node port.
// egress-here  the egress address is for answers to pods alone: the node answers nobody there, so it resets no connection
//
//	of a pod that another node began to translate.
func (w wanted) egressRules() (all []rule) {
	if len(w.egress) == 0 {
		return nil
	}
	links := egressLink + "*"
	for _, e := range w.egress {
		all = append(all, rule{
			wayOut, fmt.Sprintf("from %s through other links than %s with source %s", e.link, linkName, e.address),
			slices.Concat(inBy(e.link), outBy(linkName, expr.CmpOpNeq), snat(e.address)),
		}, rule{
			egressOnly, fmt.Sprintf("from %s with source %s", e.link, e.address),
			slices.Concat(inBy(e.link), inNetwork(ipSource, single(e.address)), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}),
		})
		if e.owner {
			all = append(all, rule{
				egressHere, fmt.Sprintf("to %s only answers", e.address), slices.Concat(destination(single(e.address)), notAnswer(), dropped()),
			})
		}
	}
	all = append(all, rule{
		egressOnly, fmt.Sprintf("from %s through other links than %s not with another source", links, linkName),
		slices.Concat(inBy(links), outBy(linkName, expr.CmpOpNeq), dropped()),
	}, rule{
		noReturn, fmt.Sprintf("from %s not back to %s, except by a node port", links, linkName),
		slices.Concat(inBy(links), outBy(linkName, expr.CmpOpEq), sameDestination(), reject()),
	})
	return append(all, databaseRules(links, w.databases, databasesHere, databasesThere)...)
}

// notAnswer matches packets that belong to no connection.
func notAnswer() []expr.Any {
	known := binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Ct{Register: register, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: known, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: make([]byte, 4)},
	}
}

// nic is a NIC that can have an egress address.
type nic struct {
	netlink.Link
	egress map[netip.Addr]netlink.Addr // that it has
}

// putEgress gives the NICs of the node the addresses that the node owns, and takes all other egress addresses away. An
// address belongs to the NIC whose network has it. unfit are the addresses of the ways that belong to none.
func (n *Node) putEgress(ways []egressWay) (changed bool, unfit []netip.Addr, err error) {
	var again []func() error
	err = links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		nics, at, err := nicsOf(h)
		if err != nil {
			return err
		}
		var failed error
		add := map[netip.Addr]*nic{}
		for _, w := range ways {
			to := at(w.address)
			switch {
			case to == nil:
				unfit = append(unfit, w.address)
			case w.owner:
				add[w.address] = to
			}
		}
		for _, one := range nics {
			for address, is := range one.egress {
				if add[address] == one {
					continue
				}
				changed = true
				if err := h.AddrDel(one.Link, &is); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
					failed = errors.Join(failed, fmt.Errorf("remove egress address %s of link %s: %w", address, one.Attrs().Name, err))
				}
			}
		}
		due := time.Since(n.announced) >= announceEvery
		n.owns = len(add) > 0
		for address, to := range add {
			_, has := to.egress[address]
			if !has {
				changed = true
				if err := h.AddrReplace(to.Link, &netlink.Addr{IPNet: links.IPNet(single(address)), Scope: egressScope}); err != nil {
					failed = errors.Join(failed, fmt.Errorf("add egress address %s to link %s: %w", address, to.Attrs().Name, err))
					continue
				}
			}
			if !has || due {
				again = append(again, func() error {
					return links.Announce(n.cfg.Netns, to.Attrs().Name, to.Attrs().HardwareAddr, []netip.Addr{address})
				})
				n.announced = time.Now()
			}
		}
		return failed
	})
	for _, announce := range again {
		err = errors.Join(err, announce())
	}
	return changed, unfit, err
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

// answer lets the bridge ask which part in egress addresses is in force, now that sync has succeeded or failed. A part
// is in force once OVN has installed its ports. Until then the former version is answered.
func (n *Node) answer(place *uplink.Place, part *uplink.Egress, unfit []netip.Addr, synced bool) error {
	if part == nil {
		n.version = ""
		return n.answers.Sync(netip.AddrPort{}, nil, egress.State{})
	}
	key, err := hex.DecodeString(part.Key)
	if err != nil {
		return fmt.Errorf("egress-changed from the bridge: key: %w", err)
	}
	if synced && n.installed(part) == nil {
		n.version = part.Version
	}
	return n.answers.Sync(netip.AddrPortFrom(place.Node, part.Port), key, egress.State{Version: n.version, Unfit: unfit})
}

// installed returns an error if OVN has not installed a port of the part.
func (n *Node) installed(part *uplink.Egress) error {
	var w wanted
	if err := w.addEgress(part); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, e := range w.egress {
		if err := n.cfg.Switch.Check(ctx, e.port); err != nil {
			return err
		}
	}
	return nil
}
