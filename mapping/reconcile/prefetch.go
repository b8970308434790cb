package reconcile

import (
	"context"
	"sync/atomic"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Prefetch starts reading a backend before the first caller of Read asks, so that the
// read overlaps the computation of the wanted model. The first Read returns the result,
// or reads again if that failed. stop ends the reading, and returns when it has ended.
func Prefetch(ctx context.Context, backend Backend) (prefetched Backend, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	p := &prefetch{Backend: backend, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.model, p.err = backend.Read(ctx)
	}()
	stop = func() {
		cancel()
		<-p.done
	}
	if observer, ok := backend.(Observer); ok {
		return observedPrefetch{p, observer}, stop
	}
	return p, stop
}

type prefetch struct {
	Backend
	done  chan struct{}
	model netvirt.Model
	err   error
	taken atomic.Bool
}

type observedPrefetch struct {
	*prefetch
	Observer
}

// Read implements Backend.
func (p *prefetch) Read(ctx context.Context) (netvirt.Model, error) {
	if p.taken.Swap(true) {
		return p.Backend.Read(ctx)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	model, err := p.model, p.err
	if p.model = nil; err != nil {
		return p.Backend.Read(ctx)
	}
	return model, nil
}

// Watch implements Backend. The prefetched model is dropped when the backend reports that
// it may be out of date.
func (p *prefetch) Watch(ctx context.Context, changed func()) error {
	return p.Backend.Watch(ctx, func() {
		p.taken.Store(true)
		changed()
	})
}
