// Package node connects the node itself to the pod network. It creates the link of the
// node's management port and adds it to the switch, routes the pod network to it, and
// writes the nftables rules for traffic that leaves the cluster with the node's address. If
// namespaces are isolated, it creates a link for each namespace with interfaces on the node
// instead, routes the addresses of these interfaces, and forwards nothing. With a management port the
// node answers on the node ports of services and the host ports of pods (package nodeports). It translates to egress addresses, which
// NICs of the node have (package nics), and replaces ports that OpenDaylight does not program (package odlports). Package node checks all
// of this when the kernel or the switch reports a change, and repairs only what differs.
//
// It needs no memory, because it recognises what it created: links by their group, addresses by
// their link, routes by their protocol, rules by their table, ports by their external_ids.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/egress/nics"
	"github.com/coe-bridge/coe-bridge/cni/healthchecks"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/odlports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/podservices"
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
	// OpenDaylight is set if OpenDaylight programs the switch: it recognises ports by names of one form.
	OpenDaylight bool
	// Managers are the managers of the switch, tcp:HOST:PORT or ssl:HOST:PORT, if OpenDaylight is at the same addresses.
	Managers []string
	// Programmed returns the OpenFlow numbers of the ports that OpenDaylight knows, and whether their elan-instances lead packets to them.
	// Nil if OpenDaylight does not program the switch.
	Programmed func(context.Context) (map[uint32]bool, error)
	Log        *slog.Logger
	Registry   prometheus.Registerer
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
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	ports   *nodeports.Table
	// pods are the pods that are led to services; unledPods is set when no rules of a former process are left in pods.
	pods            *podservices.Pods
	unledPods       bool
	health          *healthchecks.Server
	hosts           hostPorts
	answers         *egress.Server
	othersForgotten bool // see forgetOthers
	// lacksIPv6 is set if the node cannot have IPv6, although its place has. ruledIPv6 is set once the rules of IPv6 were
	// written: they keep forged sources out.
	lacksIPv6 atomic.Bool
	ruledIPv6 bool
	// fed is the place for which ports has the ports of services; nil if it does not have them.
	fed *uplink.Place
	// connected is set if the node matched its place at the last check.
	connected bool
	// well is set once everything was as it should be. failing is when repairs began to fail; zero while they do not.
	well    bool
	failing time.Time
	// failure, portsFailure, answersFailure, forgetFailure, unprogrammedFailure and withoutIPv6 were logged last.
	failure, waysFailure, portsFailure, answersFailure, forgetFailure, unprogrammedFailure, withoutIPv6 string
	// confirmed is what the node has confirmed of its part in egress addresses.
	confirmed egress.State
	nics      *nics.NICs
	forwards  bool // this process has let the kernel forward IPv6 packets
	// forgotten is when stale connections were forgotten last.
	forgotten time.Time
	// own are the ports for the node's own programs and for clients inside the cluster, by what they were made from.
	own map[string][]nodeports.Port
	// odl has the ports of the node that wait for OpenDaylight.
	odl         *odlports.Ports
	facts       *facts // nil until the switch has answered
	controllers []netip.Addr
	// unreached was logged last.
	unreached []string
}

// New returns a Node.
func New(cfg Config) *Node {
	return &Node{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registry),
		ports:  nodeports.New(nodeports.Config{Netns: cfg.Netns, Link: linkName, EgressLinks: furtherLinks(cfg.OpenDaylight)}),
		pods:   podservices.New(cfg.Netns, cfg.Log),
		health: healthchecks.New(cfg.Netns), answers: egress.New(cfg.Netns), nics: nics.New(nics.Config{Netns: cfg.Netns, OfPods: isOwn, FreshFor: freshFor}),
		hosts: hostPorts{requests: make(chan chan<- error)}, own: map[string][]nodeports.Port{},
		odl: odlports.New(odlports.Config{Switch: cfg.Switch, Programmed: cfg.Programmed, Log: cfg.Log}), controllers: controllersOf(cfg.Managers),
	}
}

// Run keeps the node connected until ctx is done, and then leaves everything in place.
func (n *Node) Run(ctx context.Context) {
	defer func() {
		if err := n.health.Close(); err != nil {
			n.log.Warn("could not end the health checks of load balancers", "err", err)
		}
		n.answers.Close()
		n.pods.Close()
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
	heard := n.cfg.Uplink.Heard()        // before the part is read, so that the bridge was heard with this part or a later one
	part, known := n.cfg.Uplink.Egress() // before the place is made to match: the answer is about this part
	if !known || place == nil || place.Isolated {
		part = nil
	}
	asks, stop := n.asking(ctx)
	defer stop()
	o := n.sync(ctx, asks, place, part, heard)
	n.metrics.joined.Set(number(o.err == nil && place != nil))
	n.metrics.changes.Add(float64(len(o.changes)))
	if len(o.changes) > 0 {
		n.log.Info("updated the node's connection to the pod network", "changed", o.changes)
	}
	n.logFailure(ctx, "the node is not connected to the pod network", o.err, &n.failure)
	n.logFailure(ctx, "egress addresses are not in force on the node", o.ofWays(), &n.waysFailure)
	if place == nil {
		n.followPods(asks, nil)
		return delayOf(o.err, retryAfter)
	}
	unanswered := n.answer(asks, place, part, &o)
	n.logFailure(ctx, "the bridge cannot ask about egress addresses", unanswered, &n.answersFailure)
	n.connected = o.err == nil
	n.readHostPorts(asks, place)
	served := n.syncServices(ctx, place)
	n.followPods(asks, place)
	if unread == nil {
		n.ports.Begin(begun)
	}
	again = cmp.Or(delayOf(errors.Join(o.err, o.ofWays(), o.waits, unanswered), retryAfter), served)
	again = sooner(again, n.odl.Next())
	return sooner(again, n.nics.Next())
}

// sooner returns the shorter one of two delays; 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
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
	case !n.leads(place):
		n.ports.Replace(nil)
		n.pods.Replace(nil, slices.Concat(place.Services, place.Pods))
		clear(n.own)
	case c.All:
		clear(n.own)
		all := make([]nodeports.Port, 0, len(c.Put))
		slices.SortFunc(c.Put, byNeedOfPods)
		var ofPods []nodeports.Port
		for _, e := range c.Put {
			all = append(all, n.exposedPorts(e, place)...)
			if p, leads := n.podPort(e, place); leads {
				ofPods = append(ofPods, p)
			}
		}
		n.ports.Replace(all)
		n.pods.Replace(ofPods, slices.Concat(place.Services, place.Pods))
	default:
		for _, e := range c.Gone {
			n.remove(e, place)
		}
		for _, e := range c.Put {
			n.put(e, place)
		}
	}
	n.pods.Sync()
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
	if n.leads(place) {
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
	at := n.placeOfPorts(place)
	at.Balances = n.balances(place)
	if n.lacksIPv6.Load() || !n.ruledIPv6 {
		at.IPv6 = nodeports.Addresses{}
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
		n.metrics.ownPorts.Set(float64(n.ports.Own()))
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
