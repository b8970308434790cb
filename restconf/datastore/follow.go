package datastore

import (
	"context"
	"sync"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Batch is what one revision changed. After a break in which etcd dropped its
// history, one Batch may stand for several revisions. A Batch without a change
// tells that the revision has been reached.
type Batch struct {
	Revision int64
	// Snapshot: Put is everything that there is.
	Snapshot bool
	// History is the name of the history of revisions, where it is another from this
	// Revision on; in a Snapshot always.
	History string
	Put     []*Unit
	Delete  []*Unit // without Raw

	marks []mark
}

// follower queues what its consumer has not taken yet. The queue is not bounded:
// it holds no bytes that the mirror hasn't had.
type follower struct {
	mu    sync.Mutex
	queue []Batch
	wake  chan struct{}
}

func (f *follower) push(b Batch) {
	f.mu.Lock()
	f.queue = append(f.queue, b)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it is awake already
	}
}

func (f *follower) take() []Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.queue
	f.queue = nil
	return queue
}

// Follow calls fn with a snapshot of all units, and then with every change, in
// the order of revisions, each once. It returns fn's first error, ctx's when ctx
// ends, or ErrClosed.
func (d *Datastore) Follow(ctx context.Context, fn func(Batch) error) error {
	f := &follower{wake: make(chan struct{}, 1)}
	d.mirror.attach(f)
	defer d.mirror.detach(f)
	for {
		for _, b := range f.take() {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := fn(b); err != nil {
				return err
			}
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.mirror.closed:
			return d.mirror.why
		}
	}
}

// attach starts f with a snapshot, so that no change falls between.
func (m *mirror) attach(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := Batch{Revision: m.rev, Snapshot: true, History: m.history}
	for _, units := range m.shelf {
		b.Put = append(b.Put, units...)
	}
	f.push(b)
	m.follow[f] = struct{}{}
}

func (m *mirror) detach(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.follow, f)
}

// Parse is the unit's content.
func (u *Unit) Parse() (*yang.Data, error) { return yang.DecodeObject(u.Raw, u.Node) }
