package nodeports

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// noteChanged notes the ports that are about to change, for forget: all if the former content is not known, or if
// there must be no table.
func (t *table) noteChanged() {
	if !t.whole || !t.at.Edge.IsValid() {
		t.unforgotten = nil
	}
	if t.left = nil; !t.at.Edge.IsValid() {
		t.left = t.ports()
	}
	if t.unforgotten == nil {
		return
	}
	for g, had := range t.former {
		if want := t.want[g]; g.isPort() && g.at.protocol == unix.IPPROTO_UDP && !slices.Equal(had, want) {
			t.unforgotten[g.at] = t.unforgotten[g.at] || g.set != services || leads(had) || leads(want)
		}
	}
}

// ports returns the ports that the table had, as far as it is known.
func (t *table) ports() map[portKey]bool {
	all := map[portKey]bool{}
	for g, had := range t.former {
		all[g.at] = all[g.at] || g.isPort() && had != nil
	}
	for g := range t.want {
		if _, changed := t.former[g]; !changed && g.isPort() {
			all[g.at] = true
		}
	}
	return all
}

// forget deletes the kernel's connections of UDP to changed ports that lead elsewhere now. Otherwise a
// client that keeps sending would never reach another endpoint. If it fails, the next call repeats it.
// The first one is about all ports if there are ports or a table, because an earlier process may have ended
// before.
func (t *table) forget() error {
	if len(t.left) > 0 {
		if err := t.family.forget(t.cfg.Netns, []tuple{{}}, t.isLeft); err != nil {
			return fmt.Errorf("forget the connections of removed ports of services: %w", err)
		}
		t.left = nil
	}
	if t.unforgotten != nil && len(t.unforgotten) == 0 {
		return nil
	}
	if err := t.family.forget(t.cfg.Netns, t.changedTuples(), t.isStale); err != nil {
		return fmt.Errorf("forget the UDP connections of changed ports of services: %w", err)
	}
	t.unforgotten = map[portKey]bool{}
	return nil
}

// isLeft reports whether a connection was led by a port that a node had when it left the pod network. Nothing reaches its endpoint
// any more, and the kernel keeps a connection of TCP for days.
func (t *table) isLeft(f *netlink.ConntrackFlow, own addresses) bool {
	address, valid := netip.AddrFromSlice(f.Forward.DstIP)
	if !valid || f.Zone != 0 || f.Forward.DstIP.Equal(f.Reverse.SrcIP) && f.Forward.DstPort == f.Reverse.SrcPort {
		return false
	}
	at := portKey{address.Unmap(), f.Forward.Protocol, f.Forward.DstPort}
	every := portKey{t.family.every, at.protocol, at.number}
	return t.left[at] || own.has(f.Forward.DstIP) && t.left[every]
}

// changedTuples names the connections of ports that have changed.
func (t *table) changedTuples() []tuple {
	all := map[tuple]bool{}
	for at := range t.unforgotten {
		all[tuple{protocol: at.protocol, port: at.number}] = true
	}
	if t.unforgotten == nil || len(all) > maxTuples {
		return []tuple{{protocol: unix.IPPROTO_UDP}}
	}
	return slices.Collect(maps.Keys(all))
}

// ForgetOthers deletes the kernel's connections of others than the node's programs whose source was
// translated to an address. Their next packets begin them again, by the rules of now.
func ForgetOthers(ns netns.NsHandle, source netip.Addr) error {
	of := []tuple{{reply: true, to: source}}
	if err := ipv4.forget(ns, of, func(f *netlink.ConntrackFlow, own addresses) bool { return ofOthers(f, own, source) }); err != nil {
		return fmt.Errorf("forget the connections of others with source %s: %w", source, err)
	}
	return nil
}

// Connection is a connection as it leaves the node, after translation.
type Connection struct {
	From, To netip.AddrPort
	Protocol uint8
}

// ForgetConnections deletes connections of the kernel. Their next packets begin them again, by the rules of now.
func ForgetConnections(ns netns.NsHandle, all map[Connection]bool) error {
	at := func(ip net.IP, port uint16) netip.AddrPort {
		addr, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(addr.Unmap(), port)
	}
	var tuples []tuple
	for c := range all {
		tuples = append(tuples, tuple{
			reply: true, protocol: c.Protocol, source: c.To.Addr(), sourcePort: c.To.Port(), to: c.From.Addr(), port: c.From.Port(),
		})
	}
	err := ipv4.forget(ns, tuples, func(f *netlink.ConntrackFlow, _ addresses) bool {
		return f.Zone == 0 && all[Connection{at(f.Reverse.DstIP, f.Reverse.DstPort), at(f.Reverse.SrcIP, f.Reverse.SrcPort), f.Forward.Protocol}]
	})
	if err != nil {
		return fmt.Errorf("forget %d connections: %w", len(all), err)
	}
	return nil
}

// ForgetTo deletes the kernel's connections to an address, except those that are led elsewhere.
func ForgetTo(ns netns.NsHandle, to netip.Addr) error {
	err := ipv4.forget(ns, []tuple{{to: to}}, func(f *netlink.ConntrackFlow, _ addresses) bool {
		return f.Zone == 0 && f.Forward.DstIP.Equal(to.AsSlice()) && f.Reverse.SrcIP.Equal(to.AsSlice())
	})
	if err != nil {
		return fmt.Errorf("forget the connections to %s: %w", to, err)
	}
	return nil
}

func ofOthers(f *netlink.ConntrackFlow, own addresses, source netip.Addr) bool {
	return f.Reverse.DstIP.Equal(source.AsSlice()) && !own.has(f.Forward.SrcIP)
}

// addresses are the addresses of the node.
type addresses []netlink.Addr

func (own addresses) has(ip net.IP) bool {
	return slices.ContainsFunc(own, func(a netlink.Addr) bool { return a.IP.Equal(ip) })
}

// forget deletes the connections of a network namespace that tuples name and that match.
func (f *family) forget(ns netns.NsHandle, tuples []tuple, matches func(f *netlink.ConntrackFlow, own addresses) bool) error {
	own, err := f.ownAddresses(ns)
	if err != nil {
		return err
	}
	k, err := f.tracker(ns)
	if err != nil {
		return err
	}
	defer k.close()
	all, err := k.list(tuples)
	for i := range all {
		if matches(&all[i].ConntrackFlow, own) {
			err = errors.Join(err, k.remove(&all[i]))
		}
	}
	return err
}

// ownAddresses returns the addresses of a node.
func (f *family) ownAddresses(ns netns.NsHandle) (addresses, error) {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return links.Dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, f.number) })
}

// isStale reports whether a connection is one of UDP to a port that does not lead to a target of the port, or
// whose client must not reach it.
func (t *table) isStale(f *netlink.ConntrackFlow, own addresses) bool {
	address, valid := netip.AddrFromSlice(f.Forward.DstIP)
	to, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	if !valid || !ok || f.Forward.Protocol != unix.IPPROTO_UDP || f.Zone != 0 { // zones belong to the switch
		return false
	}
	address, to = address.Unmap(), to.Unmap()
	at, programs := portKey{address, f.Forward.Protocol, f.Forward.DstPort}, own.has(f.Forward.SrcIP)
	if !t.has(at, programs) && !t.changed(at, programs) && own.has(f.Forward.DstIP) {
		at.address = t.family.every
	}
	endpoint := netip.AddrPortFrom(to, f.Reverse.SrcPort)
	leads := t.leads(at, endpoint, t.toService(at, f.Forward.SrcIP, own))
	if led := t.of(insiders, at); led != nil && t.isInside(f.Forward.SrcIP, own) {
		leads = leadsTo(led, endpoint)
	}
	return t.concerns(at, programs, address, to) && (!leads || t.refuses(at, f.Forward.SrcIP))
}

// isInside reports whether a client is led by insiders: a program of the node, or a pod.
func (t *table) isInside(client net.IP, own addresses) bool {
	from, _ := netip.AddrFromSlice(client)
	return t.balances && (own.has(client) || slices.ContainsFunc(t.inside, func(p netip.Prefix) bool { return p.Contains(from.Unmap()) }))
}

// leadsTo reports whether elements lead to an endpoint.
func leadsTo(elements []element, to netip.AddrPort) bool {
	return slices.ContainsFunc(elements, func(e element) bool { return e.set == endpoints && e.value == addressOf(to) })
}

// toService reports whether a client of a port is led to the cluster address although there are endpoints: a program of
// the node, and a pod that asks an external address.
func (t *table) toService(at portKey, client net.IP, own addresses) bool {
	if t.balances {
		return false
	}
	from, _ := netip.AddrFromSlice(client)
	return own.has(client) || at.address != t.family.every && slices.ContainsFunc(t.inside, func(p netip.Prefix) bool { return p.Contains(from.Unmap()) })
}

// of returns the elements of a group; nil if there is no table.
func (t *table) of(set string, at portKey) []element {
	if !t.wanted() {
		return nil
	}
	return t.want[group{set, at}]
}

// has reports whether the node answers clients on a port: its programs, or others.
func (t *table) has(at portKey, programs bool) bool {
	of := t.of(services, at)
	return of != nil && (programs || leads(of)) || t.of(hosts, at) != nil
}

// changed reports whether a port has changed for clients: the node's programs, or others.
func (t *table) changed(at portKey, programs bool) bool {
	others, is := t.unforgotten[at]
	return is && (programs || others)
}

// leads reports whether a port leads to a target. A cluster address is one for some clients, or if the port has no
// endpoints.
func (t *table) leads(at portKey, to netip.AddrPort, toService bool) bool {
	elements := t.of(services, at)
	balanced := slices.ContainsFunc(elements, func(e element) bool { return e.set == balancers })
	is := func(e element) bool { return e.value == addressOf(to) && (e.set != services || toService || !balanced) }
	return slices.ContainsFunc(elements, is) || slices.ContainsFunc(t.of(hosts, at), is)
}

// refuses reports whether a client must not reach a port.
func (t *table) refuses(at portKey, client net.IP) bool {
	from, _ := netip.AddrFromSlice(client)
	from = from.Unmap()
	only := false
	for _, e := range t.of(services, at) {
		switch e.set {
		case restricted:
			only = true
		case sources:
			if t.family.rangeOf(e).Contains(from) {
				return false
			}
		}
	}
	return only
}

// rangeOf returns the clients of an element of sources.
func (f *family) rangeOf(e element) netipx.IPRange {
	size := int(f.size)
	half := len(e.key) / 2
	first, _ := netip.AddrFromSlice([]byte(e.key[half-size : half]))
	last, _ := netip.AddrFromSlice([]byte(e.key[2*half-size:]))
	return netipx.IPRangeFrom(first, last)
}

// concerns reports whether a connection can be one of a port. If all ports count, these are the
// ports that are there now, and those whose connections were led to a pod or a service. Such a connection
// of another program begins again with its next packet.
func (t *table) concerns(at portKey, programs bool, asked, to netip.Addr) bool {
	if t.unforgotten != nil {
		return t.changed(at, programs)
	}
	return t.has(at, programs) || asked != to && slices.ContainsFunc(t.inside, func(p netip.Prefix) bool { return p.Contains(to) })
}
