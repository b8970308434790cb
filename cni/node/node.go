// Package node connects the node itself to the pod network. It creates the link of the
// node's management port and adds it to the switch, routes the pod network to it, and
// writes the nftables rules for traffic that leaves the cluster with the node's address. If
// namespaces are isolated, it creates a link for each namespace with interfaces on the node
// instead, routes the addresses of these interfaces, and forwards nothing. With a management port the
// node answers on the node ports of services and the host ports of pods (package nodeports). Package node checks all of this
// when the kernel or the switch reports a change, and repairs only what differs.
//
// It needs no memory, because it recognises what it created: links by their group, addresses by
// their link, routes by their protocol, rules by their table, ports by their external_ids.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/healthchecks"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Config configures a Node.
type Config struct {
	Switch *ovs.Switch    // run by the caller
	Uplink *uplink.Uplink // run by the caller
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// Settings is where the network settings of the node are written; empty means the
	// default.
	Settings links.Settings
	// MTU returns the MTU of pod links.
	MTU func(context.Context) (int, error)
	// Disabled keeps the node without a place, whatever the bridge reports: for networks
	// that OpenDaylight programs.
	Disabled bool
	Log      *slog.Logger
	Registry prometheus.Registerer
}

const (
	// timeout bounds one check and repair of everything.
	timeout = 20 * time.Second
	// retryAfter is the delay before a failed repair is repeated.
	retryAfter = 2 * time.Second
	// listenAfter is the delay before a port of health checks is tried again on which another program listens.
	listenAfter = 30 * time.Second
	// unwellAfter is how long repairs may fail until health checks of load balancers fail. Existing connections
	// and endpoints outlive short failures, for example a restart of the switch.
	unwellAfter = time.Minute
	// gather is how long changes are collected before the next check.
	gather = 50 * time.Millisecond
	// rest is the delay between two changes of ports of services. The first one is programmed at once.
	rest = 20 * time.Millisecond
	// freshFor is how long after the bridge was last heard endpoints on other nodes count as current. It is longer than
	// the time between two signs of life, and shorter than the time after which another pod can get an address.
	freshFor     = 25 * time.Second
	refreshEvery = 5 * time.Second
)

// Node keeps a node connected to the pod network. Run must be called once.
type Node struct {
	cfg             Config
	log             *slog.Logger
	metrics         *metrics
	ports           *nodeports.Table
	health          *healthchecks.Server
	hosts           hostPorts
	answers         *egress.Server
	othersForgotten bool // see forgetOthers
	// fed is the place for which ports has the ports of services; nil if it does not have them.
	fed *uplink.Place
	// connected is set if the node matched its place at the last check.
	connected bool
	// well is set once everything was as it should be. failing is when repairs began to fail; zero while they do not.
	well    bool
	failing time.Time
	// failure, portsFailure, answersFailure, forgetFailure and withoutIPv6 were logged last.
	failure, portsFailure, answersFailure, forgetFailure, withoutIPv6 string
	// version is the version of the part in egress addresses that is in force; empty if none is.
	version string
	// announced is when the egress addresses of the node were announced last.
	announced time.Time
	owns      bool // a NIC has an egress address
	looked    bool // for egress addresses of a former process
	forwards  bool // this process has let the kernel forward IPv6 packets
	// forgotten is when stale connections were forgotten last.
	forgotten time.Time
	// unreached was logged last.
	unreached []string
}

// New returns a Node.
func New(cfg Config) *Node {
	return &Node{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registry),
		ports:  nodeports.New(nodeports.Config{Netns: cfg.Netns, Link: linkName, EgressLinks: egressLink + "*"}),
		health: healthchecks.New(cfg.Netns), answers: egress.New(cfg.Netns),
		hosts: hostPorts{requests: make(chan chan<- error)},
	}
}

// Run keeps the node connected until ctx is done, and then leaves everything in place. If
// the Node is disabled, Run removes what an earlier one has created, and returns.
func (n *Node) Run(ctx context.Context) {
	if n.cfg.Disabled {
		for ctx.Err() == nil && n.synced(ctx, nil) > 0 {
			pause(ctx, retryAfter)
		}
		return
	}
	defer func() {
		if err := n.health.Close(); err != nil {
			n.log.Warn("could not end the health checks of load balancers", "err", err)
		}
		n.answers.Close()
	}()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	e := events{routes: make(chan struct{}, 1), filters: make(chan struct{}, 1)}
	watching.Go(func() { n.watchKernel(ctx, e.routes, e.filters) })
	var stop func()
	e.ports, stop = n.cfg.Switch.ListenNode()
	defer stop()
	for ctx.Err() == nil {
		place, known, told := n.cfg.Uplink.Place()
		e.told, e.services = told, n.cfg.Uplink.ServicesChanged()
		n.hosts.failure = errors.New("the node is not connected to the pod network")
		var again time.Duration
		if known {
			again = n.synced(ctx, place)
		}
		n.hosts.answer()
		n.await(ctx, e, place, again)
		n.hosts.takeAll()
	}
}

// events are what a check follows.
type events struct {
	routes, filters chan struct{}   // the kernel's
	ports           <-chan struct{} // of the switch
	told, services  <-chan struct{} // what the bridge has reported: ports of services, or anything else
}

// await waits until everything must be checked again: for a time after the first change, so that changes are
// collected, or after again, 0 for never. Meanwhile it follows the ports of services: a change of theirs needs no other
// check.
func (n *Node) await(ctx context.Context, e events, place *uplink.Place, again time.Duration) {
	var w waiting
	w.retryIn(again)
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		services := e.services
		if w.rested != nil {
			services = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-w.due:
			return
		case request := <-n.hosts.requests:
			n.hosts.take(request)
			w.soon()
		case <-e.told:
			e.told = nil
			w.soon()
		case <-e.routes:
			w.soon()
		case <-e.filters:
			if !n.ports.Alone() {
				w.soon()
			}
		case <-e.ports:
			w.soon()
		case <-w.retry:
			w.soon()
		case <-w.rested:
			w.rested = nil
		case <-services:
			e.services = n.cfg.Uplink.ServicesChanged()
			n.follow(ctx, place, &w)
		case <-refresh.C:
			if n.refresh() != nil {
				w.soon()
			}
		}
	}
}

// waiting has the times for which await waits.
type waiting struct {
	due     <-chan time.Time // the next check
	retry   <-chan time.Time // a check that tries again what has failed, at retryAt
	retryAt time.Time
	rested  <-chan time.Time // the next change of ports of services; nil if it is programmed at once
}

func (w *waiting) soon() {
	if w.due == nil {
		w.due = time.After(gather)
	}
}

// retryIn lets a check follow after a time, 0 for never, unless one follows earlier.
func (w *waiting) retryIn(again time.Duration) {
	if at := time.Now().Add(again); again > 0 && (w.retry == nil || at.Before(w.retryAt)) {
		w.retry, w.retryAt = time.After(again), at
	}
}

// follow programs changed ports of services. If others have changed nftables, the next check does so.
func (n *Node) follow(ctx context.Context, place *uplink.Place, w *waiting) {
	if !n.ports.Alone() {
		w.soon()
		return
	}
	begun := time.Now()
	again := n.serve(ctx, place)
	w.rested = time.After(max(rest, time.Since(begun)))
	w.retryIn(again)
}

// refresh says that endpoints on other nodes are current while the bridge is heard.
func (n *Node) refresh() error { return n.ports.Refresh(n.cfg.Uplink.Heard().Add(freshFor)) }

// serve follows the ports of services, if the node is connected at a place. It returns when to try again what has
// failed; 0 for never.
func (n *Node) serve(ctx context.Context, place *uplink.Place) time.Duration {
	if place == nil || n.fed != place {
		return 0 // the next check follows
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return n.syncServices(ctx, place)
}

// synced makes the node match its place, nil for none. It returns when to try again what has failed; 0 for never.
func (n *Node) synced(ctx context.Context, place *uplink.Place) (again time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun, unread := nodeports.Generation(n.cfg.Netns)
	part, known := n.cfg.Uplink.Egress() // before the place is made to match: the answer is about this part
	if !known || place == nil || place.Isolated {
		part = nil
	}
	changes, unfit, err := n.sync(ctx, place, part)
	n.metrics.joined.Set(number(err == nil && place != nil))
	n.metrics.changes.Add(float64(len(changes)))
	if len(changes) > 0 {
		n.log.Info("updated the node's connection to the pod network", "changed", changes)
	}
	n.logFailure(ctx, "the node is not connected to the pod network", err, &n.failure)
	if place == nil {
		return delayOf(err, retryAfter)
	}
	n.logFailure(ctx, "the bridge cannot ask about egress addresses", n.answer(place, part, unfit, err == nil), &n.answersFailure)
	n.connected = err == nil
	n.readHostPorts(ctx, place)
	served := n.syncServices(ctx, place)
	if unread == nil {
		n.ports.Begin(begun)
	}
	again = cmp.Or(delayOf(err, retryAfter), served)
	if n.owns && (again == 0 || again > announceEvery) {
		again = announceEvery
	}
	return again
}

// syncServices makes the node answer for services and pods. It returns when to try again what has failed; 0 for never.
func (n *Node) syncServices(ctx context.Context, place *uplink.Place) time.Duration {
	failed := n.syncPorts(place)
	failed = errors.Join(failed, n.refresh())
	unanswered := n.syncHealthChecks(place, n.healthy(n.connected && n.ports.Current()))
	n.logFailure(ctx, "the node does not answer for services and pods as it should: on node ports, external addresses, health checks and host ports",
		errors.Join(failed, unanswered), &n.portsFailure)
	return cmp.Or(delayOf(failed, retryAfter), delayOf(unanswered, listenAfter))
}

// feed gives the table the ports of services that have changed; all after a change of the place. It returns the
// addresses of all nodes. known is false while the ports are not known.
func (n *Node) feed(place *uplink.Place) (nodes []netip.Addr, known bool) {
	c, known := n.cfg.Uplink.TakeExposed(n.fed != place)
	if !known {
		return nil, false
	}
	n.fed = place
	switch {
	case !leads(place):
		n.ports.Replace(nil)
	case c.All:
		all := make([]nodeports.Port, len(c.Put))
		for i, e := range c.Put {
			all[i] = exposedPort(e, place)
		}
		n.ports.Replace(all)
	default:
		for _, e := range c.Gone {
			n.ports.Remove(exposedPort(e, place))
		}
		for _, e := range c.Put {
			n.ports.Put(exposedPort(e, place))
		}
	}
	return c.Nodes, true
}

// delayOf returns the delay after an error, and 0 for none.
func delayOf(err error, delay time.Duration) time.Duration {
	if err == nil {
		return 0
	}
	return delay
}

// healthy reports whether health checks of load balancers succeed, after repairs that did or did not succeed.
func (n *Node) healthy(repaired bool) bool {
	switch {
	case repaired:
		n.well, n.failing = true, time.Time{}
	case n.failing.IsZero():
		n.failing = time.Now()
	}
	return n.well && (n.failing.IsZero() || time.Since(n.failing) < unwellAfter)
}

// syncHealthChecks makes the node answer the health checks of load balancers. It changes nothing while they are
// not known. A node that leads nothing to services answers none.
func (n *Node) syncHealthChecks(place *uplink.Place, healthy bool) error {
	all, known := n.cfg.Uplink.HealthChecks()
	if !known {
		return nil
	}
	checks := map[uint16]healthchecks.Check{}
	if leads(place) {
		for _, c := range all {
			checks[c.Port] = healthchecks.Check{Namespace: c.Namespace, Service: c.Service, Endpoints: c.Endpoints}
		}
	}
	return n.health.Sync(checks, healthy)
}

// syncPorts makes the node answer on the node ports of services and the host ports of pods. It changes nothing
// while they are not known.
func (n *Node) syncPorts(place *uplink.Place) error {
	nodes, known := n.feed(place)
	if !known {
		n.hosts.failure = errors.New("the bridge has not sent the ports of services since the node booted")
		return nil
	}
	hosts, unread := n.hosts.are, n.hosts.unread
	at := nodeports.Place{
		Edge: place.Edge, Network: networkOf(place), Inside: slices.Concat(place.Pods, place.Services), Node: place.Address,
		ByGateways: only4(place.Gateways), HostPorts: servesHostPorts(place),
	}
	loopback := hosts.Unknown || slices.ContainsFunc(hosts.Ports, func(p nodeports.HostPort) bool { return p.Address.IsLoopback() })
	if !loopback { // before the table, which may have no rules for it any more
		if n.hosts.failure = n.allowLoopback(false); n.hosts.failure != nil {
			return n.hosts.failure
		}
	}
	changed, err := n.ports.Sync(at, hosts, nodes)
	if n.hosts.failure = unread; !n.ports.Current() {
		n.hosts.failure = errors.Join(unread, err)
	}
	if loopback && !hosts.Unknown && n.ports.Current() {
		err = errors.Join(err, n.allowLoopback(true))
	}
	if err = errors.Join(unread, err); err == nil {
		n.metrics.ports.Set(float64(n.ports.Services()))
		n.metrics.hostPorts.Set(float64(len(hosts.Ports)))
	}
	if changed {
		n.log.Debug("updated the node ports of services and the host ports of pods", "ports", n.ports.Services(), "hostPorts", len(hosts.Ports))
	}
	return err
}

// logFailure logs an error, unless it was the last one that was logged.
func (n *Node) logFailure(ctx context.Context, message string, err error, last *string) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != *last && !errors.Is(ctx.Err(), context.Canceled) {
		n.log.Error(message, "err", err)
	}
	*last = text
}

// logUnreached logs the pods that the node does not reach, if they have changed.
func (n *Node) logUnreached(pods []string) {
	n.metrics.unreached.Set(float64(len(pods)))
	if len(pods) > 0 && !slices.Equal(pods, n.unreached) {
		n.log.Warn("the node and some of its pods do not reach each other", "pods", pods)
	}
	n.unreached = pods
}

// sync makes the node match its place and its part in egress addresses. unfit are the egress addresses for which the node
// has no NIC.
func (n *Node) sync(ctx context.Context, place *uplink.Place, part *uplink.Egress) (changes []string, unfit []netip.Addr, err error) {
	if place == nil {
		changes, err = n.leave(ctx)
		return changes, nil, err
	}
	w, err := n.wanted(ctx, place, part)
	if err != nil {
		return nil, nil, fmt.Errorf("determine the node's connection to the pod network: %w", err)
	}
	n.logUnreached(w.unreached)
	taken, left := false, error(nil)
	if n.owns || !n.looked { // before the rule that keeps the node from answering
		taken, left = n.takeEgress(w.egress)
		n.looked = true
	}
	changes, err = n.join(ctx, w)
	held, unfit, failed := n.putEgress(w.egress)
	n.metrics.egressWays.Set(float64(len(w.egress)))
	if taken || held {
		changes = append(changes, "egress addresses")
	}
	n.logFailure(ctx, "connections of selected pods that began with another source do not continue", n.forgetStale(w), &n.forgetFailure)
	return changes, unfit, errors.Join(left, err, failed)
}

// minIPv6 is the smallest MTU of links with IPv6 (RFC 8200). The kernel has no IPv6 on others.
const minIPv6 = 1280

// usable returns a place without IPv6 if the node cannot have IPv6, and logs why.
func (n *Node) usable(ctx context.Context, place *uplink.Place, mtu int) *uplink.Place {
	if place.IPv6 == (uplink.PlaceIPv6{}) {
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
	if why == nil {
		return place
	}
	without := *place
	without.IPv6 = uplink.PlaceIPv6{}
	return &without
}

// wanted returns the wanted state of the node.
func (n *Node) wanted(ctx context.Context, place *uplink.Place, part *uplink.Egress) (wanted, error) {
	routed, err := routedHosts(n.cfg.Netns)
	if err != nil {
		return wanted{}, err
	}
	mtu := place.MTU
	if mtu == 0 {
		if mtu, err = n.cfg.MTU(ctx); err != nil {
			return wanted{}, err
		}
	}
	w, err := newWanted(n.usable(ctx, place, mtu), n.cfg.Uplink.Records(), routed)
	w.mtu = mtu
	if err == nil && part != nil {
		err = w.addEgress(part)
	}
	if err != nil {
		return w, err
	}
	if w.softwareChecksums, err = n.cfg.Switch.Userspace(ctx); err != nil {
		return w, err
	}
	settings, err := n.cfg.Switch.Settings(ctx)
	if err != nil {
		return w, err
	}
	w.databases = databasePorts(settings)
	if part != nil { // a pod could keep the bridge from being answered
		w.databases = append(w.databases, part.Port)
	}
	return w, nil
}

// join removes what is not wanted, and creates what is missing. Each step finds what it needs
// from the steps before.
func (n *Node) join(ctx context.Context, w wanted) (changes []string, err error) {
	step := func(what string, do func() (bool, error)) (ok bool) {
		changed, failed := do()
		if changed && !slices.Contains(changes, what) {
			changes = append(changes, what)
		}
		err = errors.Join(err, failed)
		return failed == nil
	}
	step("link", func() (bool, error) { return n.removeOthers(ctx, w.pairs) })
	if !w.isolated {
		step("forwarding", func() (bool, error) { return n.allowForwarding(w) })
	}
	// Rules come before links and routes, so that no packet misses them. Without them the node would connect
	// isolated namespaces, or let pods leave without their egress address.
	ruled := step("rules", func() (bool, error) { return putRules(n.cfg.Netns, w) })
	if !ruled && (w.isolated || len(w.egress) > 0) {
		return changes, err
	}
	if ruled {
		step("connections", func() (bool, error) { return false, n.forgetOthers(w) })
	}
	// The routing rules need the mark that the rules set.
	if !step("routing rules", func() (bool, error) { return putFences(n.cfg.Netns, w) }) {
		w.pairs = slices.DeleteFunc(slices.Clone(w.pairs), func(p pair) bool { return strings.HasPrefix(p.link, egressLink) })
	}
	for _, p := range w.pairs {
		if step("link", func() (bool, error) { return n.createLink(ctx, w, p) }) {
			step("settings", func() (bool, error) { return n.putSettings(p) })
			step("link", func() (bool, error) { return n.putLink(ctx, w, p) })
			step("addresses", func() (bool, error) { return putAddress(n.cfg.Netns, p) })
		}
	}
	step("routes", func() (bool, error) { return putRoutes(n.cfg.Netns, w) })
	for _, p := range w.pairs {
		step("port", func() (bool, error) {
			return n.cfg.Switch.PutNode(ctx, ovs.NodePort{Name: p.port, Interface: p.iface, MAC: p.mac.String()})
		})
	}
	return changes, err
}

// forgetOthers ends the connections of others whose source is the service address: once, when the rules give
// others the edge address. The kernel keeps the source of a connection. IPv6 came after edge addresses.
func (n *Node) forgetOthers(w wanted) error {
	if !w.ipv4.edge.IsValid() || n.othersForgotten {
		return nil
	}
	err := nodeports.ForgetOthers(n.cfg.Netns, w.ipv4.service)
	n.othersForgotten = err == nil
	return err
}

// createLink creates a pair if it does not exist. The link comes before its port: a switch that
// sees a new link behind an old port may keep the old link.
func (n *Node) createLink(ctx context.Context, w wanted, p pair) (created bool, err error) {
	if is, err := p.exists(n.cfg.Netns); is || err != nil {
		return false, err
	}
	if err := n.removePair(ctx, p.port); err != nil {
		return false, err
	}
	return true, links.Make(n.pair(w, p))
}

// removeOthers removes all pairs except the wanted ones, with their ports. Addresses and routes
// go with the links.
func (n *Node) removeOthers(ctx context.Context, pairs []pair) (removed bool, err error) {
	names, err := ownPorts(n.cfg.Netns)
	if err != nil {
		return false, err
	}
	ports, err := n.cfg.Switch.NodePorts(ctx)
	if err != nil {
		return false, err
	}
	for _, port := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, ports)))) {
		if !slices.ContainsFunc(pairs, func(p pair) bool { return p.port == port }) {
			removed = true
			err = errors.Join(err, n.removePair(ctx, port))
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
	held, _, egress := n.putEgress(nil)
	n.metrics.egressWays.Set(0)
	if held {
		changes = append(changes, "egress addresses")
	}
	if err := n.allowLoopback(false); err != nil {
		return nil, err // the table keeps others out
	}
	n.ports.Replace(nil)
	n.fed = nil
	removed, ports := n.ports.Sync(nodeports.Place{}, nodeports.Hosts{}, nil) // first: they need the rules and the link
	if removed {
		changes = append(changes, "node ports")
	}
	ports = errors.Join(ports, n.health.Sync(nil, false))
	n.metrics.ports.Set(0)
	n.metrics.hostPorts.Set(0)
	removed, err = n.removeOthers(ctx, nil)
	if removed {
		changes = append(changes, "link")
	}
	removed, fences := putFences(n.cfg.Netns, wanted{})
	if removed {
		changes = append(changes, "routing rules")
	}
	removed, rules := removeRules(n.cfg.Netns)
	if removed {
		changes = append(changes, "rules")
	}
	return changes, errors.Join(egress, ports, err, fences, rules)
}

// Cleanup removes everything that a Node has created. No Node may run meanwhile.
func (n *Node) Cleanup(ctx context.Context) error {
	if _, err := n.leave(ctx); err != nil {
		return fmt.Errorf("clean up the node's connection to the pod network: %w", err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
