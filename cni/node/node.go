// Package node joins a node with the network of the pods: it makes the link of the
// node's management port and plugs it into the switch, routes what is the network's
// there, and writes the nftables rules by which pods leave the cluster with the node's
// address. It does so again whenever the kernel or the switch tells that something of
// it may be another than it was, and changes nothing that is as it has to be.
//
// What it makes is recognisably its own: the link by its group, addresses by being on
// it, routes by their protocol, rules by their table, the port by what it says in the
// switch's database. So it has no memory. It knows neither pods nor services, only the
// ranges of their addresses.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// Config is what a Node is told.
type Config struct {
	Switch *ovs.Switch    // run by the caller
	Uplink *uplink.Uplink // run by the caller
	// Netns is the node's network namespace.
	Netns netns.NsHandle
	// Settings is where the settings of the node's network are written; empty for the
	// default.
	Settings links.Settings
	// MTU is that of pods' links.
	MTU func(context.Context) (int, error)
	// Apart: the node has no place, whatever the bridge tells, as where OpenDaylight makes
	// the network.
	Apart    bool
	Log      *slog.Logger
	Registry prometheus.Registerer
}

const (
	// timeout bounds one look at everything, and its mending.
	timeout = 20 * time.Second
	// retryAfter is when what failed is tried again though nothing has changed.
	retryAfter = 2 * time.Second
	// gather is how long changes are gathered after one was dealt with: who makes
	// many is not followed one by one.
	gather = 50 * time.Millisecond
)

// Node keeps a node joined. Run it.
type Node struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	failure string // the last that was logged
}

// New returns a Node.
func New(cfg Config) *Node {
	return &Node{cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registry)}
}

// Run keeps the node joined until ctx is done. What it has made stays then. From a node
// apart it takes away what was made before.
func (n *Node) Run(ctx context.Context) {
	if n.cfg.Apart {
		for ctx.Err() == nil && !n.settled(ctx, nil) {
			pause(ctx, retryAfter)
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	kernel := make(chan struct{}, 1)
	watching.Go(func() { n.watchKernel(ctx, kernel) })
	port, stop := n.cfg.Switch.Listen(portName)
	defer stop()
	for ctx.Err() == nil {
		place, known, told := n.cfg.Uplink.Place()
		retry := time.NewTimer(retryAfter)
		if !known || n.settled(ctx, place) {
			retry.Stop()
		}
		select {
		case <-ctx.Done():
		case <-told:
		case <-kernel:
		case <-port:
		case <-retry.C:
		}
		retry.Stop()
		pause(ctx, gather)
	}
}

// settled makes the node be as its place is, nil for none, and tells whether it is.
func (n *Node) settled(ctx context.Context, place *uplink.Place) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changes, err := n.settle(ctx, place)
	n.metrics.joined.Set(number(err == nil && place != nil))
	n.metrics.changes.Add(float64(len(changes)))
	if len(changes) > 0 {
		n.log.Info("the node's place in the network was made", "changed", changes)
	}
	n.noteFailure(ctx, err)
	return err == nil
}

// noteFailure logs what failed, once.
func (n *Node) noteFailure(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != n.failure && !errors.Is(ctx.Err(), context.Canceled) {
		n.log.Error("the node is not joined with the network", "err", err)
	}
	n.failure = text
}

func (n *Node) settle(ctx context.Context, place *uplink.Place) (changes []string, err error) {
	if place == nil {
		return n.leave(ctx)
	}
	w, err := n.wanted(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("find how the node is to be joined: %w", err)
	}
	return n.join(ctx, w)
}

// wanted is what is to be there.
func (n *Node) wanted(ctx context.Context, place *uplink.Place) (wanted, error) {
	w, err := newWanted(place)
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
	if w.mtu = place.MTU; w.mtu == 0 {
		w.mtu, err = n.cfg.MTU(ctx)
	}
	return w, err
}

// join makes what is missing, in an order in which each step finds what it needs. A
// link comes before its port: a switch that sees a new link behind an old port may
// keep the old one.
func (n *Node) join(ctx context.Context, w wanted) (changes []string, err error) {
	note := func(what string, changed bool) {
		if changed {
			changes = append(changes, what)
		}
	}
	there, err := isPair(n.cfg.Netns)
	if err != nil {
		return nil, err
	}
	if !there {
		if err := n.removePlug(ctx); err != nil {
			return nil, err
		}
		if err := addLink(ctx, n.cfg.Netns, w); err != nil {
			return nil, err
		}
		note("link", true)
	}
	// Rules come before routes: what is sent by the one must not miss the other.
	steps := []struct {
		what string
		do   func() (bool, error)
	}{
		{"forwarding", n.allowForwarding},
		{"rules", func() (bool, error) { return putRules(n.cfg.Netns, w) }},
		{"link", func() (bool, error) { return putLink(n.cfg.Netns, w) }},
		{"addresses", func() (bool, error) { return putAddresses(n.cfg.Netns, w) }},
		{"routes", func() (bool, error) { return putRoutes(n.cfg.Netns, w) }},
		{"port", func() (bool, error) { return n.cfg.Switch.PutNode(ctx, w.port()) }},
	}
	for _, step := range steps { // each does what it can, whatever the others can't
		changed, failed := step.do()
		note(step.what, changed)
		err = errors.Join(err, failed)
	}
	return changes, err
}

// removePlug removes port and link.
func (n *Node) removePlug(ctx context.Context) error {
	if err := n.cfg.Switch.DeleteNode(ctx, portName); err != nil {
		return err
	}
	return removeLink(n.cfg.Netns)
}

// leave removes all that is the package's own: with the link its addresses and routes.
func (n *Node) leave(ctx context.Context) (changes []string, err error) {
	there, err := linkThere(n.cfg.Netns)
	if err == nil && there {
		changes = append(changes, "link")
	}
	err = errors.Join(err, n.removePlug(ctx))
	removed, rules := removeRules(n.cfg.Netns)
	if removed {
		changes = append(changes, "rules")
	}
	return changes, errors.Join(err, rules)
}

// Cleanup removes all that a Node has made. None may run meanwhile.
func (n *Node) Cleanup(ctx context.Context) error {
	if _, err := n.leave(ctx); err != nil {
		return fmt.Errorf("clean up the node's place in the network: %w", err)
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
