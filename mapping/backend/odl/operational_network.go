package odl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// network is the last state of the operational datastore, for Lacks.
type network struct {
	mu   sync.RWMutex
	seen *view // nil before the first observation
	// session is the session that seen was read from; whole is when to read everything again.
	session *session
	whole   time.Time
	// written holds the interfaces that were written during the current observation, which
	// may have seen their old state.
	written map[string]bool
}

// Observe implements reconcile.Observer. It reads the members of each elan and vpn each time,
// which is little data. It reads the rest only of interfaces whose membership is new or that
// were not complete. At the interval of Config.Poll it reads everything.
func (b *Backend) Observe(ctx context.Context, awaited []string) ([]string, error) {
	s := b.observed.Load()
	if s == nil {
		return nil, errors.New("read OpenDaylight's operational datastore: the bridge is not connected to OpenDaylight")
	}
	n := &b.network
	before, whole := n.begin(s)
	begun := time.Now()
	now, err := s.view(ctx)
	if err == nil {
		unsure := now.unsure(before, awaited)
		if whole = whole || len(unsure) > fewEntries; whole {
			err = s.readPorts(ctx, now)
		} else {
			now.keep(before)
			err = s.readSome(ctx, now, unsure)
		}
	}
	if err == nil {
		err = b.lookAtGroups(ctx, s, before, now, awaited)
	}
	if err != nil {
		return nil, fmt.Errorf("read OpenDaylight's operational datastore: %w", err)
	}
	if whole {
		n.wholeAgain(max(b.cfg.Poll, pollShare*time.Since(begun)))
	}
	return n.end(s, now), nil
}

// begin starts an observation. It returns the last view, and whether to read everything.
func (n *network) begin(s *session) (before *view, whole bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.written = map[string]bool{}
	if n.seen == nil {
		return newView(), true
	}
	return n.seen, n.session != s || time.Now().After(n.whole)
}

func (n *network) wholeAgain(after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.whole = time.Now().Add(after)
}

// end stores the view, and returns the interfaces whose state has changed.
func (n *network) end(s *session, now *view) (changed []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.written {
		delete(now.ports, name)
	}
	before := cmp.Or(n.seen, newView())
	n.seen, n.session, n.written = now, s, nil
	for name, p := range now.ports {
		if before.ports[name] != p {
			changed = append(changed, name)
		}
	}
	for name := range before.ports {
		if _, found := now.ports[name]; !found {
			changed = append(changed, name)
		}
	}
	return changed
}

// forget forgets the state of the interfaces that changes affect: the controller removes
// their state and creates it again.
func (n *network) forget(changes []netvirt.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := cmp.Or(n.seen, newView())
	going := before.involved(changes)
	if n.written != nil {
		maps.Copy(n.written, going)
	}
	if n.seen != nil {
		ports := maps.Clone(before.ports)
		maps.DeleteFunc(ports, func(name string, _ port) bool { return going[name] })
		n.seen = &view{before.elans, before.vpns, ports}
	}
}

// Lacks implements reconcile.Observer. It returns why a written object is not in operation,
// or not known to be; empty if it is.
func (b *Backend) Lacks(o netvirt.Object) string {
	n := &b.network
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.seen == nil {
		return "OpenDaylight has not reported its status yet"
	}
	return n.seen.lacks(o)
}
