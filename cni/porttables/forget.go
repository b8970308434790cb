package porttables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
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
		if want := t.want[g]; g.IsPort() && g.At.Protocol == unix.IPPROTO_UDP && !slices.Equal(had, want) {
			t.unforgotten[g.At] = t.unforgotten[g.At] || g.Set != nodeports.Services || nodeports.LeadsOthers(had) || nodeports.LeadsOthers(want)
		}
	}
}

// ports returns the ports that the table had, as far as it is known.
func (t *table) ports() map[nodeports.PortKey]bool {
	all := map[nodeports.PortKey]bool{}
	for g, had := range t.former {
		all[g.At] = all[g.At] || g.IsPort() && had != nil
	}
	for g := range t.want {
		if _, changed := t.former[g]; !changed && g.IsPort() {
			all[g.At] = true
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
		if err := t.delete([]conntrack.Tuple{{}}, t.isLeft); err != nil {
			return fmt.Errorf("forget the connections of removed ports of services: %w", err)
		}
		t.left = nil
	}
	if t.unforgotten != nil && len(t.unforgotten) == 0 {
		return nil
	}
	if err := t.delete(t.changedTuples(), t.isStale); err != nil {
		return fmt.Errorf("forget the UDP connections of changed ports of services: %w", err)
	}
	t.unforgotten = map[nodeports.PortKey]bool{}
	return nil
}

// isLeft reports whether a connection was led by a port that a node had when it left the pod network. Nothing reaches its endpoint
// any more, and the kernel keeps a connection of TCP for days.
func (t *table) isLeft(c conntrack.Connection, own []netip.Addr) bool {
	if !c.Led() {
		return false
	}
	at := askedOf(c)
	every := nodeports.PortKey{Address: t.family.Every, Protocol: at.Protocol, Number: at.Number}
	return t.left[at] || slices.Contains(own, at.Address) && t.left[every]
}

// askedOf returns the port that the client of a connection asked.
func askedOf(c conntrack.Connection) nodeports.PortKey {
	return nodeports.PortKey{Address: c.Sent.To.Addr(), Protocol: c.Protocol, Number: c.Sent.To.Port()}
}

// changedTuples names the connections of ports that have changed.
func (t *table) changedTuples() (all []conntrack.Tuple) {
	if t.unforgotten == nil {
		return []conntrack.Tuple{{Protocol: unix.IPPROTO_UDP}}
	}
	seen := map[conntrack.Tuple]bool{}
	for at := range t.unforgotten {
		seen[conntrack.Tuple{Protocol: at.Protocol, ToPort: at.Number}] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// delete deletes the connections that tuples name and that are stale. own are the addresses of the node.
func (t *table) delete(tuples []conntrack.Tuple, stale func(c conntrack.Connection, own []netip.Addr) bool) error {
	own, err := links.Addresses(t.cfg.Netns)
	if err != nil {
		return err
	}
	return conntrack.Delete(t.cfg.Netns, t.family.Number, tuples, func(c conntrack.Connection) bool { return stale(c, own) })
}

// isStale reports whether a connection is one of UDP to a port that does not lead to a target of the port, or
// whose client must not reach it.
func (t *table) isStale(c conntrack.Connection, own []netip.Addr) bool {
	if c.Protocol != unix.IPPROTO_UDP {
		return false
	}
	at, client := askedOf(c), c.Sent.From.Addr()
	asked, programs := at.Address, slices.Contains(own, client)
	if !t.has(at, programs) && !t.changed(at, programs) && slices.Contains(own, asked) {
		at.Address = t.family.Every
	}
	leads := nodeports.LeadsTo(slices.Concat(t.of(nodeports.Services, at), t.of(nodeports.HostPorts, at)), c.Answers.From, t.toService(at, client, programs))
	if led := t.of(nodeports.Insiders, at); led != nil && t.isInside(client, programs) {
		leads = nodeports.LeadsTo(led, c.Answers.From, false)
	}
	return t.concerns(at, programs, asked, c.Answers.From.Addr()) && (!leads || t.family.Refuses(t.of(nodeports.Services, at), client))
}

// isInside reports whether a client is led by nodeports.Insiders: a program of the node, or a pod.
func (t *table) isInside(client netip.Addr, program bool) bool {
	return t.balances && (program || t.isPod(client))
}

// isPod reports whether an address is one of pods and services.
func (t *table) isPod(a netip.Addr) bool {
	return slices.ContainsFunc(t.inside, func(p netip.Prefix) bool { return p.Contains(a) })
}

// toService reports whether a client of a port is led to the cluster address although there are endpoints: a program of
// the node, and a pod that asks an external address.
func (t *table) toService(at nodeports.PortKey, client netip.Addr, program bool) bool {
	return !t.balances && (program || at.Address != t.family.Every && t.isPod(client))
}

// of returns the elements of a group; nil without a table.
func (t *table) of(set string, at nodeports.PortKey) []nodeports.Element {
	if !t.wanted() {
		return nil
	}
	return t.want[nodeports.Group{Set: set, At: at}]
}

// has reports whether the node answers clients on a port: its programs, or others.
func (t *table) has(at nodeports.PortKey, programs bool) bool {
	of := t.of(nodeports.Services, at)
	return of != nil && (programs || nodeports.LeadsOthers(of)) || t.of(nodeports.HostPorts, at) != nil
}

// changed reports whether a port has changed for clients: the node's programs, or others.
func (t *table) changed(at nodeports.PortKey, programs bool) bool {
	others, is := t.unforgotten[at]
	return is && (programs || others)
}

// concerns reports whether a connection can be one of a port. If all ports count, these are the
// ports that are there now, and those whose connections were led to a pod or a service. Such a connection
// of another program begins again with its next packet.
func (t *table) concerns(at nodeports.PortKey, programs bool, asked, to netip.Addr) bool {
	if t.unforgotten != nil {
		return t.changed(at, programs)
	}
	return t.has(at, programs) || asked != to && t.isPod(to)
}
