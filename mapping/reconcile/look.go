package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const (
	// lookInterval is the shortest time between two Looks.
	lookInterval = time.Second
	// lookTimeout bounds a Look, because a client waits for it.
	lookTimeout = 10 * time.Second
)

// Note has the scopes count as behind until Look has compared them.
func (l *Loop) Note(scopes ...netvirt.Scope) { l.worker.note(scopes...) }

// Look compares every scope with the backend and writes nothing. A standby calls it when a
// client asks for the status. It does nothing within a second after the last Look: scopes
// that were noted since then count as behind. It must not be called for a Loop that runs, and
// does nothing after Close.
func (l *Loop) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	select {
	case l.looking <- struct{}{}:
		defer func() { <-l.looking }()
	case <-ctx.Done():
		return
	}
	if l.isClosed() || time.Since(l.looked) < lookInterval {
		return
	}
	looked := make(chan struct{})
	defer close(looked)
	go func() {
		select {
		case <-l.closed:
			cancel()
		case <-looked:
		}
	}()
	l.look(ctx)
}

func (l *Loop) look(ctx context.Context) {
	begun := time.Now()
	complete, revision := l.source.Complete(), l.source.Revision()
	scopes := append([]netvirt.Scope{netvirt.Cluster}, l.source.Scopes()...)
	l.forget()
	if _, err := l.read(ctx); err != nil {
		if !l.isClosed() {
			l.failed(scopes, err)
			l.looked = time.Now()
		}
		return
	}
	if l.observer != nil {
		_, _ = l.lookAtNetwork(ctx, l.awaited()) // if that fails, the last look counts
	}
	for _, s := range l.lookAt(scopes) {
		want, problems := l.want(s)
		changes, held := l.diff(s, want, complete)
		differs := len(changes) > 0
		l.mapped(s, revision, want, slices.Concat(problems, held))
		l.found(s, differs)
		if !differs {
			l.programmed([]netvirt.Scope{s}, revision, complete)
		}
	}
	l.worker.settleAll(begun)
	l.looked = time.Now()
}

// lookAt adds the scopes of the backend to the given ones. All others are forgotten.
func (l *Loop) lookAt(scopes []netvirt.Scope) []netvirt.Scope {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered(nil)
	all := slices.AppendSeq(scopes, maps.Keys(l.have))
	slices.Sort(all)
	all = slices.Compact(all)
	isGone := func(s netvirt.Scope) bool {
		_, found := slices.BinarySearch(all, s)
		return !found
	}
	maps.DeleteFunc(l.scopes, func(s netvirt.Scope, _ *scopeStatus) bool { return isGone(s) })
	maps.DeleteFunc(l.uncertain, func(s netvirt.Scope, _ bool) bool { return isGone(s) })
	return all
}

// found notes whether the backend differs from a wanted scope.
func (l *Loop) found(s netvirt.Scope, differs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.scope(s)
	one.differs, one.lastError, one.unanswered = differs, "", false
}

// Close frees a Loop that does not run, and returns when the last Look has ended. A Loop that
// runs is freed when its context is done.
func (l *Loop) Close() {
	l.worker.queue.ShutDown()
	close(l.closed)
	l.looking <- struct{}{} // no Look can start any more
}

func (l *Loop) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
