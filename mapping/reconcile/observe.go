package reconcile

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Observer is a Backend that also knows what the network makes of what was written to
// it: that comes later, or not at all. What the network lacks does not count as confirmed, and
// is no reason to write anything. Its methods are called beside the Backend's.
type Observer interface {
	// Observe looks at the network, and returns the interfaces of whose objects Lacks may
	// say something else than before. The awaited are those that lacked something: it is
	// worth more to learn of them than of others. It is called by one goroutine at a time.
	Observe(ctx context.Context, awaited []string) (changed []string, err error)
	// Lacks says for people what the network lacks of an object that the backend has,
	// without naming it; it is empty where that is nothing. It goes by what Observe saw
	// last, and before that by nothing: all is lacking then.
	Lacks(o netvirt.Object) string
	// Identity names what the network is made from, and is another when that was lost, and
	// what the network was programmed with before is to be forgotten. It is empty while
	// that is not known.
	Identity() string
}

// How long a Loop waits between two looks at the network: while what is awaited comes,
// while nothing of it does, and while nothing is awaited.
const (
	observeSoon    = 250 * time.Millisecond
	observeWaiting = time.Second
	observeIdle    = 2 * time.Second
)

// observeShare is which part of the time looking may take.
const observeShare = 10

// observe looks at the network until ctx is done, where the backend can do that, once it is
// known what the backend has: soon after each write, and again until all of that is there.
func (l *Loop) observe(ctx context.Context) {
	if l.observer == nil {
		return
	}
	for !l.wasRead() && ctx.Err() == nil {
		l.awaitWrite(ctx, observeSoon)
	}
	for wait := observeSoon; ctx.Err() == nil; {
		begun := time.Now()
		awaited := l.awaited()
		switch moved, err := l.lookAtNetwork(ctx, awaited); {
		case moved:
			wait = observeSoon
		case err != nil || len(awaited) > 0:
			wait = min(2*wait, observeWaiting)
		default:
			wait = observeIdle
		}
		rest(ctx, (observeShare-1)*time.Since(begun))
		if l.awaitWrite(ctx, wait) {
			wait = observeSoon
		}
	}
}

// wasRead tells whether it is known what the backend has, or had last.
func (l *Loop) wasRead() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.have != nil
}

// awaitWrite waits for a write, which it reports, but no longer than it is told.
func (l *Loop) awaitWrite(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-l.written:
		return true
	}
	return false
}

// lookAtNetwork has the network looked at, and tells whether that has shown something new.
// While it can't be, what was seen last counts: the network need not have changed.
func (l *Loop) lookAtNetwork(ctx context.Context, awaited []string) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutsPerRead*l.cfg.Timeout)
	defer cancel()
	begun := time.Now()
	changed, err := l.observer.Observe(ctx, awaited)
	l.metrics.observe("observe", begun, err)
	if err != nil {
		l.log.Debug("look what the network makes of what was written", "err", err)
		return false, err
	}
	if !l.observed.Swap(true) {
		changed = nil
	} else if len(changed) == 0 {
		return false, nil
	}
	if l.source.Realised != nil {
		l.source.Realised(changed)
	}
	return true, nil
}

// awaited lists the interfaces that the backend has and that lack something.
func (l *Loop) awaited() (interfaces []string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, parts := range l.have {
		for name, part := range parts {
			if name != "" && l.partLacks(part) {
				interfaces = append(interfaces, name)
			}
		}
	}
	return interfaces
}

func (l *Loop) partLacks(part *netvirt.Part) bool {
	for _, o := range part.Model {
		if l.Lacks(o) != "" {
			return true
		}
	}
	return false
}

// Lacks says for people what the network lacks of an object that the backend has; empty
// where that is nothing, or nobody can know.
func (l *Loop) Lacks(o netvirt.Object) string {
	if l.observer == nil {
		return ""
	}
	return l.observer.Lacks(o)
}

// Identity names what the network is made from, as Observer says; empty where nobody knows.
func (l *Loop) Identity() string {
	if l.observer == nil {
		return ""
	}
	return l.observer.Identity()
}

// Observed tells whether it is known what the network makes of what the backend has.
func (l *Loop) Observed() bool { return l.observer == nil || l.observed.Load() }

// stir has the network looked at soon, since something was written.
func (l *Loop) stir() {
	select {
	case l.written <- struct{}{}:
	default:
	}
}

// Lack is what the network lacks of some of a scope's objects.
type Lack struct {
	Reason  string      // for people
	Objects int         // of how many
	Example netvirt.Key // the first of them
}

// lacks are what the network lacks of a scope, and of how many objects that the backend
// has. The caller holds mu.
func (l *Loop) lacks(s netvirt.Scope) (all []Lack, objects int) {
	if l.observer == nil {
		return nil, 0
	}
	found := map[string]*Lack{}
	for _, part := range l.have[s] {
		for k, o := range part.Model {
			reason := l.observer.Lacks(o)
			if reason == "" {
				continue
			}
			objects++
			if one := found[reason]; one == nil {
				found[reason] = &Lack{reason, 1, k}
			} else {
				one.Objects++
				if k.Compare(one.Example) < 0 {
					one.Example = k
				}
			}
		}
	}
	return sortedLacks(found), objects
}

func sortedLacks(found map[string]*Lack) []Lack {
	all := make([]Lack, 0, len(found))
	for _, one := range found {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Lack) int { return strings.Compare(a.Reason, b.Reason) })
	return all
}
