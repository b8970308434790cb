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

// network is what the operational datastore said last, for Lacks.
type network struct {
	mu   sync.RWMutex
	seen *view // nil before the first look
	// session is whose operational datastore it is; whole is when all is to be read again.
	session *session
	whole   time.Time
	// written are the interfaces that were written since the look began that is under way:
	// what it saw of them may be older.
	written map[string]bool
}

// Observe looks at the operational datastore. What says which interfaces are members of
// which elan and vpn is short, and read each time; of the interfaces of which that is new or not
// all, the rest is read too. All is read at the interval of the other comparisons.
func (b *Backend) Observe(ctx context.Context, awaited []string) ([]string, error) {
	s, err := b.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at OpenDaylight's operational datastore: %w", err)
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
	if err != nil {
		return nil, fmt.Errorf("look at OpenDaylight's operational datastore: %w", err)
	}
	if whole {
		n.wholeAgain(max(b.cfg.Poll, pollShare*time.Since(begun)))
	}
	return n.end(s, now), nil
}

// current returns the session that there is. To make one is for others.
func (b *Backend) current(ctx context.Context) (*session, error) {
	if err := b.take(ctx); err != nil {
		return nil, err
	}
	defer b.give()
	if b.session == nil {
		return nil, errors.New("there is no connection")
	}
	return b.session, nil
}

// begin returns what was seen last, and whether all is to be read.
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

// end takes what was seen, and returns the interfaces of which something else was seen than
// before.
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

// forget forgets what was seen of the interfaces that changes are about: the controller takes
// them apart, and makes them anew.
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

// Lacks implements what reconcile.Observer says: why an object that is written is not, or not
// known to be, in operation.
func (b *Backend) Lacks(o netvirt.Object) string {
	n := &b.network
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.seen == nil {
		return "OpenDaylight has not said yet what it has made of it"
	}
	return n.seen.lacks(o)
}
