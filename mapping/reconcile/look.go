package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// lookInterval is how old what Look found may be.
const lookInterval = 2 * time.Second

// Look compares every scope with the backend and writes nothing, for a process
// that does not lead and is asked how far the one that leads is. What was found
// less than two seconds ago is not looked for again. It is not for a Loop that
// runs.
func (l *Loop) Look(ctx context.Context) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if time.Since(l.looked) < lookInterval {
		return
	}
	complete, revision := l.source.Complete(), l.source.Revision()
	scopes := append([]netvirt.Scope{netvirt.Cluster}, l.source.Scopes()...)
	l.forget()
	if _, err := l.read(ctx); err != nil {
		if ctx.Err() == nil {
			l.failed(scopes, err)
			l.looked = time.Now()
		}
		return
	}
	l.mu.RLock()
	for s := range l.have {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	l.mu.RUnlock()
	for _, s := range scopes {
		want, problems := l.want(s)
		differs := len(l.diff(s, want, complete)) > 0
		l.mapped(s, revision, len(want), problems)
		l.found(s, differs)
	}
	l.mu.Lock()
	l.answered(nil)
	l.mu.Unlock()
	l.looked = time.Now()
}

// Close frees a Loop that does not run. One that runs is freed when its context is
// done.
func (l *Loop) Close() { l.worker.queue.ShutDown() }

// found notes whether the backend has a scope otherwise than it is wanted.
func (l *Loop) found(s netvirt.Scope, differs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scope(s).differs = differs
}
