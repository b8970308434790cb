// Package node connects the node itself to the pod network. It creates the link of the
// node's management port and adds it to the switch, routes the pod network to it, and
// lets rules give the node's address to traffic that leaves the cluster (package noderules). If
// namespaces are isolated, it creates a link for each namespace with interfaces on the node
// instead, routes the addresses of these interfaces, and forwards nothing. It adds a link for each egress address, which
// NICs of the node have (package nics), and replaces ports that OpenDaylight does not program (package odlports).
//
// Package node checks all of this when the kernel or the switch reports a change, and repairs only what differs. Then it lets the
// node answer for services and pods (package nodeservices). It knows neither expressions of nftables nor services.
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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/egress/nics"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/nodeservices"
	"github.com/coe-bridge/coe-bridge/cni/odlports"
	"github.com/coe-bridge/coe-bridge/cni/openflow"
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
	// OpenDaylight is set if OpenDaylight programs the switch: it recognises ports by names of one form.
	OpenDaylight bool
	// Managers are the managers of the switch, tcp:HOST:PORT or ssl:HOST:PORT, if OpenDaylight is at the same addresses.
	Managers []string
	// Programmed returns the stages of the ports that OpenDaylight knows, as openflow.Conn.Ports does. Nil if OpenDaylight does not program the
	// switch.
	Programmed func(context.Context, openflow.Addresses) (map[uint32]openflow.Stage, error)
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
	services        *nodeservices.Services
	answers         *egress.Server
	othersForgotten bool // see forgetOthers
	// lacksIPv6 and ruledIPv6 are in the state of services.
	lacksIPv6, ruledIPv6 bool
	// failure, portsFailure, answersFailure, forgetFailure, unprogrammedFailure and withoutIPv6 were logged last.
	failure, waysFailure, portsFailure, answersFailure, forgetFailure, unprogrammedFailure, withoutIPv6 string
	// confirmed is what the node has confirmed of its part in egress addresses.
	confirmed egress.State
	nics      *nics.NICs
	forwards  bool // this process has let the kernel forward IPv6 packets
	// forgotten is when stale connections were forgotten last.
	forgotten time.Time
	// odl has the ports that wait for OpenDaylight.
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
		services: nodeservices.New(nodeservices.Config{
			Switch: cfg.Switch, Uplink: cfg.Uplink, Netns: cfg.Netns, Settings: cfg.Settings, Link: linkName, EgressLinks: furtherLinks(cfg.OpenDaylight),
			OpenDaylight: cfg.OpenDaylight, OfDatabase: noderules.OfDatabase, FreshFor: freshFor, Log: cfg.Log, Registry: cfg.Registry,
		}),
		answers: egress.New(cfg.Netns), nics: nics.New(nics.Config{Netns: cfg.Netns, OfPods: isOwn, FreshFor: freshFor}),
		odl: odlports.New(odlports.Config{Switch: cfg.Switch, Programmed: cfg.Programmed, Log: cfg.Log}), controllers: controllersOf(cfg.Managers),
	}
}

// Services returns what makes the node answer for services and pods. The agent asks it about pods; only Run checks the node with it.
func (n *Node) Services() *nodeservices.Services { return n.services }

// Run keeps the node connected until ctx is done, and then leaves everything in place.
func (n *Node) Run(ctx context.Context) {
	defer func() {
		n.services.Close()
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
		n.services.Begin()
		place, known, told := n.cfg.Uplink.Place()
		e.told, e.services = told, n.cfg.Uplink.ServicesChanged()
		var again time.Duration
		if known {
			again = n.synced(ctx, place)
		}
		n.services.End()
		n.await(ctx, e, again)
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
func (n *Node) await(ctx context.Context, e events, again time.Duration) {
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
		case <-n.services.Asked():
			w.soon()
		case <-e.told:
			e.told = nil
			w.soon()
		case <-e.routes:
			w.soon()
		case <-e.filters:
			if !n.services.Alone() {
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
			n.follow(ctx, &w)
		case <-refresh.C:
			if n.services.Refresh() != nil {
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
func (n *Node) follow(ctx context.Context, w *waiting) {
	if !n.services.Alone() {
		w.soon()
		return
	}
	begun := time.Now()
	failed, unanswered := n.services.Follow()
	again := n.served(ctx, failed, unanswered)
	w.rested = time.After(max(rest, time.Since(begun)))
	w.retryIn(again)
}

// synced makes the node match its place, nil for none. It returns when to try again what has failed; 0 for never.
func (n *Node) synced(ctx context.Context, place *uplink.Place) (again time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
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
		_, _ = n.services.Sync(asks, nodeservices.State{}) // only pods
		return delayOf(o.err, retryAfter)
	}
	unanswered := n.answer(asks, place, part, &o)
	n.logFailure(ctx, "the bridge cannot ask about egress addresses", unanswered, &n.answersFailure)
	failed, unchecked := n.services.Sync(asks, nodeservices.State{Place: place, Connected: o.err == nil, LacksIPv6: n.lacksIPv6, RuledIPv6: n.ruledIPv6})
	served := n.served(ctx, failed, unchecked)
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

// served logs why the node does not answer for services and pods, as nodeservices.Sync returns it. It returns when to try again; 0 for never.
func (n *Node) served(ctx context.Context, failed, unanswered error) time.Duration {
	n.logFailure(ctx, "the node does not answer for services and pods as it should: on node ports, external addresses, health checks and host ports",
		errors.Join(failed, unanswered), &n.portsFailure)
	return cmp.Or(delayOf(failed, retryAfter), delayOf(unanswered, listenAfter))
}

// delayOf returns the delay after an error, and 0 for none.
func delayOf(err error, delay time.Duration) time.Duration {
	if err == nil {
		return 0
	}
	return delay
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
