// Package nics gives the NICs of a node the egress addresses that the node holds, announces them to neighbours, and takes all others
// away. The kernel is its memory: egress addresses have a scope of their own. It knows neither the bridge nor how packets get these
// addresses.
package nics

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// announceEvery is how often the addresses of the node are announced, while the bridge is heard: a neighbour can have learned
// another node.
const announceEvery = 10 * time.Second

// scope marks the egress addresses on NICs. The kernel takes no address of such a scope as the source of the
// node's own packets.
const scope = 206

// ErrNotHeard is why the node does not add an egress address.
var ErrNotHeard = errors.New("the bridge has not said since the start of the agent that the node holds it")

// Config configures NICs.
type Config struct {
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// OfPods reports whether a link is of the pod network: no NIC.
	OfPods func(link string) bool
	// FreshFor is how long after the bridge was last heard the node announces addresses.
	FreshFor time.Duration
}

// NICs are the NICs of a node. They are for one goroutine.
type NICs struct {
	cfg Config
	// announced is when the addresses were announced last.
	announced time.Time
	holds     bool // the node holds an address
	looked    bool // whether a NIC has an address of a former process
	held      int  // see Held
}

// New returns the NICs of a node.
func New(cfg Config) *NICs { return &NICs{cfg: cfg} }

// Result is what Put has done.
type Result struct {
	Changed bool
	// Unfit are the addresses that are in the network of no NIC.
	Unfit []netip.Addr
	// Failed is what has failed for single addresses, and Err anything else.
	Failed map[netip.Addr]error
	Err    error
}

// Next returns the time until addresses must be announced again; 0 if the node holds none.
func (n *NICs) Next() time.Duration {
	if n.holds {
		return announceEvery
	}
	return 0
}

// Held returns how many egress addresses the NICs had after the last Put.
func (n *NICs) Held() int { return n.held }

// TakeLost takes the egress addresses away that the node does not hold. It needs only the kernel.
func (n *NICs) TakeLost(held []netip.Addr) (changed bool, err error) {
	if n.looked && !n.holds {
		return false, nil
	}
	err = links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		all, at, err := n.list(h)
		if err != nil {
			return err
		}
		owned := ownedOf(held, at)
		changed, err = takeOthers(h, all, owned)
		n.looked, n.holds = true, err != nil || len(owned) > 0
		return err
	})
	return changed, err
}

// Put gives the NICs of the node the addresses that the node holds, and takes all other egress addresses away. candidates are the addresses
// that the node holds or may come to hold. heard is when the bridge was last heard, zero for not yet: then the node may have lost an address
// meanwhile. It keeps the address, but neither adds nor announces it, because neighbours would send to this node instead of the new one.
func (n *NICs) Put(candidates, held []netip.Addr, heard time.Time) (r Result) {
	r.Failed = map[netip.Addr]error{}
	var again []func()
	r.Err = links.At(n.cfg.Netns, func(h *netlink.Handle) error {
		all, at, err := n.list(h)
		if err != nil {
			return err
		}
		for _, address := range candidates {
			if at(address) == nil {
				r.Unfit = append(r.Unfit, address)
			}
		}
		owned := ownedOf(held, at)
		r.Changed, err = takeOthers(h, all, owned)
		due := time.Since(heard) < n.cfg.FreshFor && time.Since(n.announced) >= announceEvery
		if due {
			n.announced = time.Now()
		}
		n.holds, n.held = len(owned) > 0, 0
		for address, to := range owned {
			_, there := to.egress[address]
			if !there {
				if r.Failed[address] = add(h, to, address, heard); r.Failed[address] != nil {
					continue
				}
				r.Changed = true
			}
			n.held++
			if !there || due {
				again = append(again, func() {
					r.Failed[address] = links.Announce(n.cfg.Netns, to.Attrs().Name, to.Attrs().HardwareAddr, []netip.Addr{address})
				})
			}
		}
		return err
	})
	for _, announce := range again {
		announce()
	}
	return r
}

// add adds an address to a NIC.
func add(h *netlink.Handle, to *nic, address netip.Addr, heard time.Time) error {
	err := ErrNotHeard
	if !heard.IsZero() {
		err = h.AddrReplace(to.Link, &netlink.Addr{IPNet: links.IPNet(netip.PrefixFrom(address, address.BitLen())), Scope: scope})
	}
	if err != nil {
		return fmt.Errorf("add egress address %s to link %s: %w", address, to.Attrs().Name, err)
	}
	return nil
}

// nic is a NIC that can have an egress address.
type nic struct {
	netlink.Link
	egress map[netip.Addr]netlink.Addr // that it has
}

// ownedOf returns the NICs for the addresses that the node holds: an address belongs to the NIC whose network has it.
func ownedOf(held []netip.Addr, at func(netip.Addr) *nic) map[netip.Addr]*nic {
	owned := map[netip.Addr]*nic{}
	for _, address := range held {
		if to := at(address); to != nil {
			owned[address] = to
		}
	}
	return owned
}

// takeOthers takes all egress addresses away from NICs, except those that are owned there.
func takeOthers(h *netlink.Handle, all []*nic, owned map[netip.Addr]*nic) (changed bool, err error) {
	for _, one := range all {
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

// list returns the NICs, and a function that returns the one whose network has an address.
func (n *NICs) list(h *netlink.Handle) (all []*nic, at func(netip.Addr) *nic, err error) {
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
		if !n.cfg.OfPods(l.Attrs().Name) && l.Attrs().Flags&net.FlagLoopback == 0 {
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
		case a.Scope == scope && p.IsSingleIP():
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
