package agent

import (
	"context"
	"fmt"
	"sync"
)

// locks are mutexes by name.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when released
}

// take waits for a lock, and returns the function that releases it.
func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	for {
		release, busy := l.try(name)
		if release != nil {
			return release, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another call for %s: %w", name, ctx.Err())
		}
	}
}

// try takes a lock if it is free. Otherwise release is nil, and busy is closed when the
// lock is released.
func (l *locks) try(name string) (release func(), busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.held[name]; c != nil {
		return nil, c
	}
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	c := make(chan struct{})
	l.held[name] = c
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(c)
	}, nil
}

// semaphore limits how many functions run at once to its capacity.
type semaphore chan struct{}

// do waits for a free place, and calls do.
func (s semaphore) do(do func() error) error {
	s <- struct{}{}
	defer func() { <-s }()
	return do()
}

// running holds the ADDs in progress, by attachment, so that a DEL can cancel them.
type running struct {
	mu    sync.Mutex
	calls map[string]map[*context.CancelFunc]bool
}

// begin returns a context that interrupt(name) cancels. The caller must call done.
func (r *running) begin(ctx context.Context, name string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[string]map[*context.CancelFunc]bool{}
	}
	if r.calls[name] == nil {
		r.calls[name] = map[*context.CancelFunc]bool{}
	}
	r.calls[name][&cancel] = true
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls[name], &cancel)
		if len(r.calls[name]) == 0 {
			delete(r.calls, name)
		}
		cancel()
	}
}

// interrupt cancels the ADDs of an attachment. It does not wait: they hold the lock of the
// attachment until they return.
func (r *running) interrupt(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cancel := range r.calls[name] {
		(*cancel)()
	}
}
