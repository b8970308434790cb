package reconcile

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Observer is a Backend that also knows what the network has programmed. That happens later
// than a write, or never. An object that the network lacks is not confirmed, and is not written
// again for that. Its methods and the methods of Backend are called concurrently.
type Observer interface {
	// Observe looks at the network, and returns the interfaces for whose objects Lacks may have
	// changed. The awaited interfaces lacked something, and come first. It is called by one
	// goroutine at a time. It may correct what the network has made of objects, unless the replica only reads.
	Observe(ctx context.Context, awaited []string) (changed []string, err error)
	// Lacks says for people what the network lacks of an object that the backend has, without
	// its name; empty if it lacks nothing. It uses the last result of Observe. Before the first
	// Observe, everything is lacking.
	Lacks(o netvirt.Object) string
	// Identity names the database that the network is programmed from. It changes when that was
	// lost and created again; the network must then forget its earlier state. It is empty while
	// it is not known.
	Identity() string
}

// How long a Loop waits between two looks at the network: while awaited interfaces are
// programmed, while none is, and while none is awaited.
const (
	observeSoon    = 250 * time.Millisecond
	observeWaiting = time.Second
	observeIdle    = 2 * time.Second
)

// observeShare bounds the share of the time that looks may take: one part of so many. The rest after a look depends on the quicker
// one of the last two looks. A single look can have waited half a minute for a network that elects a leader. A rest lasts observeRest
// at most, because new pods wait for the next look.
const (
	observeShare = 10
	observeRest  = 20 * time.Second
)

// observe looks at the network until ctx is done, if the backend is an Observer. It starts after
// the first Read, and looks soon after each write, until everything is confirmed.
func (l *Loop) observe(ctx context.Context) {
	if l.observer == nil {
		return
	}
	for !l.wasRead() && ctx.Err() == nil {
		l.awaitWrite(ctx, observeSoon)
	}
	var before time.Duration
	for wait := observeSoon; ctx.Err() == nil; {
		begun := time.Now()
		awaited := l.awaited()
		moved, err := l.lookAtNetwork(ctx, awaited)
		switch {
		case moved:
			wait = observeSoon
		case err != nil || len(awaited) > 0:
			wait = min(2*wait, observeWaiting)
		default:
			wait = observeIdle
		}
		took := time.Since(begun)
		if err != nil {
			took = 0 // it has waited for an answer
		}
		rest(ctx, min((observeShare-1)*min(took, before), observeRest))
		before = took
		if l.awaitWrite(ctx, wait) {
			wait = observeSoon
		}
	}
}

// wasRead reports whether the backend was read.
func (l *Loop) wasRead() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.have != nil
}

// awaitWrite waits for a write, and reports whether there was one in time.
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

// lookAtNetwork calls Observe, and reports whether the network has changed. If Observe fails,
// its last result counts.
func (l *Loop) lookAtNetwork(ctx context.Context, awaited []string) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	begun := time.Now()
	changed, err := l.observer.Observe(ctx, awaited)
	l.looks.Add(1)
	l.metrics.observe("observe", begun, err)
	if err != nil {
		l.log.Debug("observe the network", "err", err)
		return false, err
	}
	if !l.observed.Swap(true) {
		changed = nil
	} else if len(changed) == 0 {
		return false, nil
	}
	if l.cfg.Listener != nil {
		l.cfg.Listener.Observed(l.podsOfInterfaces(changed))
	}
	return true, nil
}

// awaited lists the interfaces that the backend has and that lack something, or whose node's
// port does.
func (l *Loop) awaited() (interfaces []string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, parts := range l.have {
		for _, part := range parts {
			if !part.Attaches() {
				continue
			}
			port := parts.Get(netvirt.NodePort{ELAN: elanOf(part)}.Key())
			if l.partLacks(part) || port != nil && l.Lacks(port) != "" {
				interfaces = append(interfaces, part.Name)
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

// Lacks says for people what the network lacks of an object that the backend has; empty if it
// lacks nothing, or the backend is not an Observer.
func (l *Loop) Lacks(o netvirt.Object) string {
	if l.observer == nil {
		return ""
	}
	return l.observer.Lacks(o)
}

// Identity is the Identity of the Observer; empty if the backend is not one.
func (l *Loop) Identity() string {
	if l.observer == nil {
		return ""
	}
	return l.observer.Identity()
}

// Observed reports whether Confirms is known: the backend was read and, if it is an Observer, the
// first Observe has succeeded.
func (l *Loop) Observed() bool { return l.wasRead() && (l.observer == nil || l.observed.Load()) }

// stir makes observe look soon, because have has changed.
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

// lackCounts has what the network lacks of each scope. Status asks again and again, and most answers are
// the same.
type lackCounts struct {
	mu   sync.Mutex
	kept map[netvirt.Scope]lackCount
}

// lackCount is what the network lacks of the parts that a scope had, as a look at the network found it.
type lackCount struct {
	parts   netvirt.Parts // they never change
	look    uint64
	lacks   []Lack
	objects int
}

// lacks returns what the network lacks of each scope. Nobody must change the result. The caller holds mu.
func (l *Loop) lacks(scopes []ScopeStatus) map[netvirt.Scope]lackCount {
	if l.observer == nil {
		return nil
	}
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	now := make(map[netvirt.Scope]lackCount, len(scopes))
	for _, one := range scopes {
		look, parts := l.looks.Load(), l.have[one.Scope] // the look first: a later one makes the count obsolete
		count := l.counts.kept[one.Scope]
		if count.look != look || reflect.ValueOf(count.parts).UnsafePointer() != reflect.ValueOf(parts).UnsafePointer() {
			count = lackCount{parts: parts, look: look}
			count.lacks, count.objects = l.lacksOf(parts)
		}
		now[one.Scope] = count
	}
	l.counts.kept = now
	return now
}

// lacksOf returns what the network lacks of the objects of parts, and the number of such objects.
func (l *Loop) lacksOf(parts netvirt.Parts) (all []Lack, objects int) {
	found := map[string]*Lack{}
	for _, part := range parts {
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
