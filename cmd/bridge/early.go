package bridge

import (
	"context"
	"sync/atomic"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// earlyRead is a backend that was begun to be read before anybody asked: what it has
// is asked for while it is still being found out what it is to have.
type earlyRead struct {
	closer
	cancel context.CancelFunc
	done   chan struct{}
	model  netvirt.Model
	err    error
	taken  atomic.Bool
}

// observedEarly is one that knows what the network makes of what it has.
type observedEarly struct {
	*earlyRead
	reconcile.Observer
}

// readEarly begins to read a backend.
func readEarly(ctx context.Context, backend closer) closer {
	ctx, cancel := context.WithCancel(ctx)
	e := &earlyRead{closer: backend, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.model, e.err = backend.Read(ctx)
	}()
	if observer, ok := backend.(reconcile.Observer); ok {
		return observedEarly{e, observer}
	}
	return e
}

// Read implements reconcile.Backend. The first one waits for the early reading; where
// that failed, it reads itself.
func (e *earlyRead) Read(ctx context.Context) (netvirt.Model, error) {
	if e.taken.Swap(true) {
		return e.closer.Read(ctx)
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	model, err := e.model, e.err
	if e.model = nil; err != nil {
		return e.closer.Read(ctx)
	}
	return model, nil
}

// Watch implements reconcile.Backend. What was read early is dropped when the backend
// reports that it may be out of date.
func (e *earlyRead) Watch(ctx context.Context, changed func()) error {
	return e.closer.Watch(ctx, func() {
		e.taken.Store(true)
		changed()
	})
}

// Close implements closer.
func (e *earlyRead) Close() {
	e.cancel()
	<-e.done
	e.closer.Close()
}
