package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/conntrack"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/policyroute"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// outcome is what a check of the node has found and done.
type outcome struct {
	changes []string
	// err is what has failed. ways has what concerns one egress address alone, by the end of its link in the switch.
	err  error
	ways map[string]error
	// waits has the ports of namespaces that wait for OpenDaylight, which the switch logs.
	waits error
	// unfit are the egress addresses for which the node has no NIC.
	unfit []netip.Addr
}

// ofWays returns what has failed for single egress addresses.
func (o *outcome) ofWays() (err error) {
	for _, port := range slices.Sorted(maps.Keys(o.ways)) {
		err = errors.Join(err, o.ways[port])
	}
	return err
}

// note notes what a step has done. port is that of a pair of links if the step concerns it alone.
func (o *outcome) note(port, what string, changed bool, err error) {
	if changed && !slices.Contains(o.changes, what) {
		o.changes = append(o.changes, what)
	}
	switch {
	case err == nil:
	case !strings.HasPrefix(port, egressPort):
		o.err = errors.Join(o.err, err)
	default:
		if o.ways == nil {
			o.ways = map[string]error{}
		}
		o.ways[port] = errors.Join(o.ways[port], err)
	}
}

// step makes a step, and reports whether it has succeeded.
func (o *outcome) step(port, what string, do func() (bool, error)) (ok bool) {
	changed, err := do()
	o.note(port, what, changed, err)
	return err == nil
}

// fail notes an error, nil for none.
func (o *outcome) fail(what string, err error) {
	if err != nil {
		o.err = errors.Join(o.err, fmt.Errorf("%s: %w", what, err))
	}
}

// putPorts puts the ports of pairs into the switch. A port that waits for OpenDaylight concerns its namespace alone, and does not disconnect the
// node, unless it is the management port or the node has no other port.
func (o *outcome) putPorts(pairs []pair, put func(pair) (bool, error)) {
	var waits error
	others := false
	for _, p := range pairs {
		o.step(p.port, "port", func() (bool, error) {
			changed, err := put(p)
			if p.link != linkName && errors.Is(err, ovs.ErrWaits) {
				waits = errors.Join(waits, err)
				return changed, nil
			}
			others = true
			return changed, err
		})
	}
	if others {
		o.waits = waits
	} else {
		o.err = errors.Join(o.err, waits)
	}
}

// connectionWait is how long a check waits for a connection to the switch. It is long enough for the first check of a process.
const connectionWait = 500 * time.Millisecond

// asking returns the context of questions to the switch. Without a connection the context has ended, and questions fail at once:
// the ports of services must follow their endpoints meanwhile.
func (n *Node) asking(ctx context.Context) (asks context.Context, stop context.CancelFunc) {
	wait, stopWaiting := context.WithTimeout(ctx, connectionWait)
	defer stopWaiting()
	asks, stop = context.WithCancel(ctx)
	if n.cfg.Switch.AwaitConnection(wait) != nil {
		stop()
	}
	return asks, stop
}

// facts are what the node must know of its switch.
type facts struct {
	mtu       int // of pod links
	userspace bool
	databases []uint16 // see databasePorts
}

// learn updates the facts. If the switch does not answer, the node goes on with what it knows.
func (n *Node) learn(asks context.Context, place *uplink.Place) (err error) {
	f := &facts{mtu: place.MTU}
	if f.mtu == 0 {
		if f.mtu, err = n.cfg.MTU(asks); err != nil {
			return err
		}
	}
	if f.userspace, err = n.cfg.Switch.Userspace(asks); err != nil {
		return err
	}
	settings, err := n.cfg.Switch.Settings(asks)
	if err != nil {
		return err
	}
	f.databases = databasePorts(settings)
	n.facts = f
	return nil
}

// sync makes the node match its place and its part in egress addresses. asks is for questions to the switch, and heard is when the bridge
// was last heard.
func (n *Node) sync(ctx, asks context.Context, place *uplink.Place, part *uplink.Egress, heard time.Time) (o outcome) {
	if place == nil {
		o.changes, o.err = n.leave(asks)
		return o
	}
	o.step("", egressAddresses, func() (bool, error) { return n.takeLost(part) })
	err := n.learn(asks, place)
	o.fail("ask the switch", err)
	if n.facts == nil {
		return o
	}
	w, err := n.wanted(ctx, place, part)
	if err != nil {
		o.fail("determine the node's connection to the pod network", err)
		return o
	}
	if w.Isolated && w.Balances && n.filtersStrictly() {
		w.unreached = append(w.unreached, "services by endpoints on other nodes: net.ipv4.conf.all.rp_filter is 1, and the node drops their answers; set it to 0")
	}
	n.logUnreached(w.unreached)
	n.join(ctx, asks, w, &o)
	replaced, unseen := n.replacePorts(asks, w)
	o.note("", "port", replaced, nil)
	n.logFailure(ctx, "cannot replace ports that OpenDaylight has not programmed", unseen, &n.unprogrammedFailure)
	n.putEgress(w.Egress, heard, &o)
	n.metrics.egressWays.Set(float64(len(w.Egress)))
	n.logFailure(ctx, "connections of selected pods that began with another source do not continue", n.forgetStale(w), &n.forgetFailure)
	return o
}

// minIPv6 is the smallest MTU of links with IPv6 (RFC 8200). The kernel has no IPv6 on others.
const minIPv6 = 1280

// usable returns a place without IPv6 if the node cannot have IPv6, and logs why.
func (n *Node) usable(ctx context.Context, place *uplink.Place, mtu int) *uplink.Place {
	if place.IPv6 == (uplink.PlaceAddresses{}) {
		return place
	}
	_, unread := n.cfg.Settings.Get(n.cfg.Netns, forwardingIPv6)
	var why error
	switch {
	case errors.Is(unread, fs.ErrNotExist): // another error comes again where it matters
		why = errors.New("the kernel of the node has no IPv6")
	case mtu < minIPv6:
		why = fmt.Errorf("links have the MTU %d, and IPv6 needs %d", mtu, minIPv6)
	}
	n.logFailure(ctx, "the node connects to pods by IPv4 only", why, &n.withoutIPv6)
	n.lacksIPv6 = why != nil
	if why == nil {
		return place
	}
	without := *place
	without.IPv6 = uplink.PlaceAddresses{}
	return &without
}

// wanted returns the wanted state of the node.
func (n *Node) wanted(ctx context.Context, place *uplink.Place, part *uplink.Egress) (wanted, error) {
	routed, err := routedHosts(n.cfg.Netns)
	if err != nil {
		return wanted{}, err
	}
	mtu := cmp.Or(place.MTU, n.facts.mtu)
	fit := *n.usable(ctx, place, mtu)
	if !n.cfg.OpenDaylight { // while a cluster moves there, the bridge reports it to nodes with OVN too
		fit.WayOut = nil
	}
	w, err := newWanted(&fit, n.cfg.Uplink.Records(), routed)
	w.mtu, w.softwareChecksums, w.Databases = mtu, n.facts.userspace, slices.Clip(n.facts.databases)
	if n.cfg.OpenDaylight {
		w.namePorts()
		w.Controllers = n.controllers
	}
	if err == nil && part != nil {
		w.Databases = append(w.Databases, part.Port) // a pod could keep the bridge from being answered
		err = w.addEgress(part)
	}
	return w, err
}

// join removes what is not wanted, and creates what is missing. Each step finds what it needs
// from the steps before. If asks has ended, join leaves the ports of the switch alone; the outcome has the reason.
func (n *Node) join(ctx, asks context.Context, w wanted, o *outcome) {
	connected := asks.Err() == nil
	if connected {
		o.step("", "link", func() (bool, error) { return n.removeOthers(asks, w.pairs, n.cfg.OpenDaylight) })
	}
	if !w.Isolated || w.Balances {
		o.step("", "forwarding", func() (bool, error) { return n.allowForwarding(w) })
	}
	// Rules come before links and routes, so that no packet misses them. Without them the node would connect
	// isolated namespaces, or let pods leave without their egress address.
	ruled := o.step("", "rules", func() (bool, error) { return w.PutRules(n.cfg.Netns) })
	n.ruledIPv6 = w.IPv6.Source.IsValid() && (ruled || n.ruledIPv6)
	if !ruled && (w.Isolated || len(w.Egress) > 0) {
		return
	}
	if ruled {
		o.step("", "connections", func() (bool, error) { return false, n.forgetOthers(w) })
	}
	// The routing rules need the mark that the rules set.
	if !o.step("", "routing rules", func() (bool, error) { return w.PutFences(n.cfg.Netns) }) {
		w.pairs = slices.DeleteFunc(slices.Clone(w.pairs), func(p pair) bool { return strings.HasPrefix(p.link, egressLink) })
	}
	for _, p := range w.pairs {
		if o.step(p.port, "link", func() (bool, error) { return n.createLink(asks, w, p) }) {
			o.step(p.port, "settings", func() (bool, error) { return n.putSettings(p) })
			o.step(p.port, "link", func() (bool, error) { return n.putLink(ctx, w, p) })
			o.step(p.port, "addresses", func() (bool, error) { return putAddress(n.cfg.Netns, p) })
		}
	}
	o.step("", "routes", func() (bool, error) { return putRoutes(n.cfg.Netns, w) })
	o.step("", "routing rules", func() (bool, error) { return policyroute.Put(n.cfg.Netns, w.routers()) })
	if connected {
		o.putPorts(w.pairs, func(p pair) (bool, error) {
			return n.cfg.Switch.PutNode(asks, p.nodePort())
		})
	}
}

// forgetOthers ends the connections of others whose source is the service address: once, when the rules give
// others the edge address. The kernel keeps the source of a connection. IPv6 came after edge addresses.
func (n *Node) forgetOthers(w wanted) error {
	if !w.IPv4.Edge.IsValid() || n.othersForgotten {
		return nil
	}
	err := conntrack.DeleteOfOthers(n.cfg.Netns, w.IPv4.Service)
	n.othersForgotten = err == nil
	return err
}

// createLink creates a pair if it does not exist. The link comes before its port: a switch that
// sees a new link behind an old port may keep the old link.
func (n *Node) createLink(asks context.Context, w wanted, p pair) (created bool, err error) {
	if is, err := p.exists(n.cfg.Netns); is || err != nil {
		return false, err
	}
	if err := n.removePair(asks, p.port); err != nil {
		return false, err
	}
	if err := n.forgetStray(w, p); err != nil {
		return false, err
	}
	return true, links.Make(n.pair(w, p))
}

// removeOthers removes all pairs except the wanted ones, with their ports. Addresses and routes
// go with the links. If keep is set, ports in elan-instances without interfaces stay for a time.
func (n *Node) removeOthers(ctx context.Context, pairs []pair, keep bool) (removed bool, err error) {
	ends, err := ownPorts(n.cfg.Netns)
	if err != nil {
		return false, err
	}
	ports, err := n.cfg.Switch.NodePorts(ctx)
	if err != nil {
		return false, err
	}
	var unused []string
	if keep {
		unused = unusedPorts(ends, pairs)
	}
	n.odl.NoteUnused(unused)
	for _, port := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(ports, maps.Keys(ends))))) {
		if n.odl.Due(port) && !slices.ContainsFunc(pairs, func(p pair) bool { return p.port == port }) {
			removed = true
			err = errors.Join(err, n.odl.Remove(port, func() error { return n.removePair(ctx, port) }))
		}
	}
	return removed, err
}

// removePair removes the port and the links of a pair.
func (n *Node) removePair(ctx context.Context, port string) error {
	if err := n.cfg.Switch.DeleteNode(ctx, port); err != nil {
		return err
	}
	return removeLink(n.cfg.Netns, port)
}

// leave removes everything that the package creates.
func (n *Node) leave(ctx context.Context) (changes []string, err error) {
	n.answers.Close()
	var o outcome
	n.putEgress(nil, time.Time{}, &o)
	n.metrics.egressWays.Set(0)
	changes = o.changes
	removed, services := n.services.Remove() // first: they need the rules and the link
	if removed {
		changes = append(changes, "node ports")
	}
	removed, err = n.removeOthers(ctx, nil, false)
	if removed {
		changes = append(changes, "link")
	}
	removed, fences := noderules.Wanted{}.PutFences(n.cfg.Netns)
	led, ways := policyroute.Put(n.cfg.Netns, nil)
	if removed || led {
		changes = append(changes, "routing rules")
	}
	removed, rules := noderules.RemoveRules(n.cfg.Netns)
	if removed {
		changes = append(changes, "rules")
	}
	return changes, errors.Join(o.err, o.ofWays(), services, err, fences, ways, rules)
}

// Cleanup removes everything that a Node has created. No Node may run meanwhile.
func (n *Node) Cleanup(ctx context.Context) error {
	if _, err := n.leave(ctx); err != nil {
		return fmt.Errorf("clean up the node's connection to the pod network: %w", err)
	}
	return nil
}
