package agent

import (
	"context"
	"fmt"
	"sync"
)

// locks are held one by one, by name.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when let go
}

// take waits for a lock, and returns how it is let go.
func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	for {
		release, busy := l.try(name)
		if release != nil {
			return release, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another call about %s: %w", name, ctx.Err())
		}
	}
}

// try takes a lock that nobody holds; otherwise release is nil, and busy is closed when
// it may be tried again.
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

// turns are taken by so many at once as its capacity.
type turns chan struct{}

// do does something when there is a turn.
func (t turns) do(do func() error) error {
	t <- struct{}{}
	defer func() { <-t }()
	return do()
}

// running are the ADDs that are under way, by attachment, so that a DEL ends them.
type running struct {
	mu    sync.Mutex
	calls map[string]map[*context.CancelFunc]bool
}

// begin returns a context that ends when the attachment is interrupted; done has to be
// called.
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

// interrupt ends the ADDs of an attachment. Who takes its lock waits for them.
func (r *running) interrupt(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cancel := range r.calls[name] {
		(*cancel)()
	}
}
