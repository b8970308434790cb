package reconcile

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const (
	// lookInterval is the shortest time between two Looks, if that is more than the last one took.
	lookInterval = time.Second
	// lookWait is how long a client waits for the end of a Look.
	lookWait = 10 * time.Second
)

// Note has the scopes count as behind until Look has compared them.
func (l *Loop) Note(scopes ...netvirt.Scope) { l.worker.note(scopes...) }

// Look compares every scope with the backend and writes nothing. A standby calls it when a
// client asks for the status. It waits for the end at most lookWait: the comparison with a
// large backend goes on, and until its end the Status has what the one before has found. Look
// starts none soon after the last one: scopes that were noted since then count as behind. It
// must not be called for a Loop that runs, and does nothing after Close.
func (l *Loop) Look(ctx context.Context) {
	timer := time.NewTimer(lookWait)
	defer timer.Stop()
	select {
	case <-l.startLook(ctx):
	case <-timer.C:
	case <-ctx.Done():
	}
}

// startLook starts to compare, unless that is in progress or not due. It returns a channel that
// is closed when no comparison is in progress any more.
func (l *Loop) startLook(ctx context.Context) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looking != nil {
		return l.looking
	}
	ended := make(chan struct{})
	if l.isClosed() || time.Now().Before(l.lookAgain) {
		close(ended)
		return ended
	}
	l.looking, l.lookSince = ended, time.Now()
	go l.lookOnce(context.WithoutCancel(ctx), ended)
	return ended
}

// lookOnce compares until that has ended or the loop is closed. Only the silence of the backend
// bounds its time, as for a leader.
func (l *Loop) lookOnce(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := l.look(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.compared = l.lookSince
	}
	l.lookAgain = time.Now().Add(max(lookInterval, time.Since(l.lookSince)))
	l.looking, l.lookSince = nil, time.Time{}
}

// look compares every scope with the backend. It returns an error if not all were compared.
func (l *Loop) look(ctx context.Context) error {
	begun := time.Now()
	complete, revision := l.source.Complete(), l.source.Revision()
	scopes := append([]netvirt.Scope{netvirt.Cluster}, l.source.Scopes()...)
	l.forget()
	if _, err := l.read(ctx); err != nil {
		if !l.isClosed() {
			l.failed(scopes, err)
		}
		return err
	}
	if l.observer != nil {
		_, _ = l.lookAtNetwork(ctx, l.awaited()) // if that fails, the last look counts
	}
	for _, s := range l.lookAt(scopes) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
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
	return nil
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
	l.mu.Lock()
	close(l.closed) // no Look can start any more
	looking := l.looking
	l.mu.Unlock()
	if looking != nil {
		<-looking
	}
}

func (l *Loop) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
