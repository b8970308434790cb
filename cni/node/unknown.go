package node

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// knownWithin is how long OpenDaylight may take to program a port of the node. It can lose the switch's message about a new port, and the
// switch sends no second one: the port never works. Pods without flows get a new port with the next ADD; a port of the node gets it here.
// Each further port of the same name gets twice the time, up to knownWithinMost, because a new one does not help where the bridge is missing.
const (
	knownWithin     = 30 * time.Second
	knownWithinMost = 8 * time.Minute
)

// unknown has the node's ports that OpenDaylight has not programmed.
type unknown map[string]waitingPort

// waitingPort is a port that waits to be programmed, with the time since when, and how long it waits.
type waitingPort struct {
	since  time.Time
	within time.Duration
}

// see notes whether OpenDaylight has programmed a port, and reports whether the port must be replaced by a new one.
func (u unknown) see(port string, programmed bool, now time.Time) (replace bool) {
	w, waits := u[port]
	switch {
	case programmed:
		delete(u, port)
	case !waits:
		u[port] = waitingPort{now, knownWithin}
	case now.Sub(w.since) >= w.within:
		u[port] = waitingPort{now, min(2*w.within, knownWithinMost)}
		return true
	}
	return false
}

// wait lets the time of ports begin again, because nobody could look at them.
func (u unknown) wait(now time.Time, ports ...string) {
	for _, port := range ports {
		if w, waits := u[port]; waits {
			w.since = now
			u[port] = w
		}
	}
}

// next returns the time until the first port must be looked at again; 0 if none waits.
func (u unknown) next(now time.Time) (first time.Duration) {
	for _, w := range u {
		first = sooner(first, max(w.within-now.Sub(w.since), retryAfter))
	}
	return first
}

// replaceUnknown replaces those ports of pairs that OpenDaylight does not learn of. It changes nothing while OpenDaylight does not program the
// switch, or while it has programmed no port at all.
func (n *Node) replaceUnknown(ctx context.Context, pairs []pair) (changed bool, err error) {
	programmed, err := n.programmed(ctx)
	if err != nil || len(programmed) == 0 {
		n.unknown.wait(time.Now(), slices.Collect(maps.Keys(n.unknown))...)
		return false, err
	}
	named := map[string]bool{}
	for _, p := range pairs {
		named[p.port] = true
		number, unopened := n.cfg.Switch.Number(ctx, p.port)
		if unopened != nil { // it waits for its turn, or for the switch
			n.unknown.wait(time.Now(), p.port)
			continue
		}
		if !n.unknown.see(p.port, programmed[number], time.Now()) {
			continue
		}
		n.log.Warn("OpenDaylight does not know a port of the node; the port is replaced", "port", p.port, "interface", p.iface)
		err = errors.Join(err, n.replace(ctx, p))
		changed = true
	}
	for port := range n.unknown {
		if !named[port] {
			delete(n.unknown, port)
		}
	}
	return changed, err
}

// flowsTimeout bounds the question for flows: a switch that hangs answers its database and no question, and the node's other work waits.
const flowsTimeout = time.Second

// programmed returns the numbers of the ports that OpenDaylight has programmed; none if the agent cannot know, or could not add a port again.
func (n *Node) programmed(ctx context.Context) (map[uint32]bool, error) {
	if n.cfg.Programmed == nil || n.cfg.Switch.AwaitsFlows() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	numbers, err := n.cfg.Programmed(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return numbers, err
}

func (n *Node) replace(ctx context.Context, p pair) error {
	if err := n.cfg.Switch.DeleteNode(ctx, p.port); err != nil {
		return err
	}
	_, err := n.cfg.Switch.PutNode(ctx, p.nodePort())
	return err
}

func (p pair) nodePort() ovs.NodePort {
	return ovs.NodePort{Name: p.port, Interface: p.iface, MAC: p.mac.String()}
}
