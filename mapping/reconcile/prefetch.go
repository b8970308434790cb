package reconcile

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Prefetch starts reading a backend before the first caller of Read asks, so that the
// read overlaps the computation of the wanted model. The first Read returns the result,
// or reads again if that failed. ended is called when the reading has ended. stop ends it, and returns when it has ended.
func Prefetch(ctx context.Context, backend Backend, ended func()) (prefetched Backend, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	p := &prefetch{Backend: backend, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer ended()
		p.have, p.err = readByScope(ctx, backend)
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
	have  map[netvirt.Scope]netvirt.Parts
	err   error
	taken atomic.Bool
}

var _ Divided = &prefetch{}

type observedPrefetch struct {
	*prefetch
	Observer
}

// Read implements Backend.
func (p *prefetch) Read(ctx context.Context) (netvirt.Model, error) {
	have, err := p.ReadByScope(ctx)
	model := netvirt.Model{}
	for _, parts := range have {
		maps.Copy(model, parts.Model())
	}
	return model, err
}

// ReadByScope implements Divided.
func (p *prefetch) ReadByScope(ctx context.Context) (map[netvirt.Scope]netvirt.Parts, error) {
	if p.taken.Swap(true) {
		return readByScope(ctx, p.Backend)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	have, err := p.have, p.err
	if p.have = nil; err != nil {
		return readByScope(ctx, p.Backend)
	}
	return have, nil
}

// Watch implements Backend. The prefetched model is dropped when the backend reports that
// it may be out of date.
func (p *prefetch) Watch(ctx context.Context, changed func()) error {
	return p.Backend.Watch(ctx, func() {
		p.taken.Store(true)
		changed()
	})
}
