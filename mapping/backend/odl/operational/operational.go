// Package operational reads what OpenDaylight has made of our entries: its operational datastore. It also corrects what Netvirt is known
// to lose: groups of new ports (decision 105), and routes to other nodes (decision 106).
//
// The package writes no entry of a list. It knows neither the mirror of our entries nor which member of a cluster is asked: its caller
// gives it the session.
package operational

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Config configures a Network.
type Config struct {
	// Poll is the interval at which Observe reads everything, and KeepRoutes the connections of switches. Observe's is longer if the
	// reading would take more than a twentieth of the time.
	Poll time.Duration
	// RoutesDelay is the time from the new connection of a switch until its routes are asked for again. They are asked for once more after
	// three times as long.
	RoutesDelay time.Duration
}

// Network is the last observed state of the operational datastore. Its methods may be called concurrently, except Observe.
type Network struct {
	cfg     Config
	log     *slog.Logger
	current atomic.Pointer[controller.Session] // nil while there is none

	mu   sync.RWMutex
	seen *view // nil before the first observation
	// session is the session that seen was read from; whole is when to read everything again.
	session *controller.Session
	whole   time.Time
	// written holds the interfaces that were written during the current observation, which
	// may have seen their old state.
	written map[string]bool
}

// New returns a Network that has not been observed, and has no session.
func New(cfg Config, log *slog.Logger) *Network { return &Network{cfg: cfg, log: log} }

// Use sets the session that is read from; nil if there is none.
func (n *Network) Use(s *controller.Session) { n.current.Store(s) }

// wholeShare limits the reading of everything to one part in wholeShare of the time.
const wholeShare = 20

// Observe returns the interfaces whose state has changed since the last call. awaited are interfaces that lacked something.
//
// It reads the members of each elan and vpn each time, which is little data. It reads the rest only of interfaces whose membership is new
// or that were not complete. At the interval of Config.Poll it reads everything. It corrects groups only if the session may write.
func (n *Network) Observe(ctx context.Context, awaited []string) (changed []string, err error) {
	s := n.current.Load()
	if s == nil {
		return nil, errors.New("read OpenDaylight's operational datastore: the bridge is not connected to OpenDaylight")
	}
	before, whole := n.begin(s)
	begun := time.Now()
	now, err := readView(ctx, s)
	if err == nil {
		unsure := now.unsure(before, awaited)
		if whole = whole || len(unsure) > controller.FewEntries; whole {
			err = now.readPorts(ctx, s)
		} else {
			now.keep(before)
			err = now.readSome(ctx, s, unsure)
		}
	}
	if err == nil {
		err = n.lookAtGroups(ctx, s, before, now, awaited)
	}
	if err != nil {
		return nil, fmt.Errorf("read OpenDaylight's operational datastore: %w", err)
	}
	if whole {
		n.wholeAgain(max(n.cfg.Poll, wholeShare*time.Since(begun)))
	}
	return n.end(s, now), nil
}

// begin starts an observation. It returns the last view, and whether to read everything.
func (n *Network) begin(s *controller.Session) (before *view, whole bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.written = map[string]bool{}
	if n.seen == nil {
		return newView(), true
	}
	return n.seen, n.session != s || time.Now().After(n.whole)
}

func (n *Network) wholeAgain(after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.whole = time.Now().Add(after)
}

// end stores the view, and returns the interfaces whose state has changed.
func (n *Network) end(s *controller.Session, now *view) (changed []string) {
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

// Forget forgets the state of the interfaces that written changes affect: the controller removes their state and creates it again.
func (n *Network) Forget(changes []netvirt.Change) {
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

// Lacks returns why a written object is not in operation, or not known to be; empty if it is.
func (n *Network) Lacks(o netvirt.Object) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.seen == nil {
		return "OpenDaylight has not reported its status yet"
	}
	return n.seen.lacks(o)
}
