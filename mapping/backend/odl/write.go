package odl

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// write is one call of Write.
type write struct {
	*controller.Session
	backend *Backend
	begun   time.Time
	share   int // maximum number of concurrent requests for one list

	mu       sync.Mutex
	mirror   *codec.Mirror
	accepted int // number of entries that the controller has accepted
	// absent is set when the controller has answered that an entry to be deleted does not
	// exist.
	absent bool
	// refused holds the objects that are not written because the controller or the codec
	// refuses them, or an object that they refer to.
	refused  map[netvirt.Key]bool
	rejected netvirt.RejectedError
	failed   []failure
	// unwritable is why the datastore accepts no write; nil if it was not asked, or does.
	unwritable error
	// late holds the postponed operations; lateUnits their units, and lateHeads the objects of those that are not deletions.
	late      []*codec.Operation
	lateUnits map[codec.Unit]bool
	lateHeads map[netvirt.Key]bool
}

// run makes the changes in runs of deletions only, or of creations and updates only.
// Deletions go through the lists in the reverse order of dependence, the others in the order
// of dependence.
func (w *write) run(ctx context.Context, changes []netvirt.Change) error {
	if err := w.identify(ctx); err != nil {
		return err
	}
	for len(changes) > 0 {
		deleting := changes[0].New == nil
		n := slices.IndexFunc(changes, func(c netvirt.Change) bool { return (c.New == nil) != deleting })
		if n < 0 {
			n = len(changes)
		}
		if err := w.runOf(ctx, deleting, changes[:n]); err != nil {
			return cmp.Or(w.checkWritable(ctx), err)
		}
		changes = changes[n:]
	}
	return w.result(ctx)
}

// runOf makes changes that are all deletions, or all creations and updates: stage by stage,
// the lists of one stage concurrently.
func (w *write) runOf(ctx context.Context, deleting bool, changes []netvirt.Change) error {
	lists, refused := w.mirror.Operations(changes)
	for _, r := range refused {
		w.reject(r.Operation, r.Err)
	}
	for i := range codec.Stages {
		stage := codec.Stages[i]
		if deleting {
			stage = codec.Stages[len(codec.Stages)-1-i]
		}
		w.share = max(1, w.Parallel()/len(stage))
		err := controller.Together(ctx, w.Parallel(), len(stage), func(ctx context.Context, n int) error {
			return w.list(ctx, stage[n], lists[stage[n]])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list makes the operations on one list.
func (w *write) list(ctx context.Context, l int, all []*codec.Operation) error {
	var create, change, remove []*codec.Operation
	for _, o := range all {
		switch {
		case o.Entry == nil:
			remove = append(remove, o)
		case w.needsLate(o):
			w.postpone(o)
		case w.refsWritten(o):
			if o.There {
				change = append(change, o)
			} else {
				create = append(create, o)
			}
		}
	}
	if err := w.removeAll(ctx, l, remove); err != nil {
		return err
	}
	change, create, err := w.prepared(ctx, l, change, create)
	if err != nil {
		return err
	}
	if err := w.change(ctx, l, change); err != nil {
		return err
	}
	if l == codec.AccessLists {
		return w.createLists(ctx, create)
	}
	return w.createAll(ctx, l, create)
}

// createAll creates entries in batches.
func (w *write) createAll(ctx context.Context, l int, all []*codec.Operation) error {
	batches := w.batches(l, all)
	return controller.Together(ctx, w.share, len(batches), func(ctx context.Context, i int) error {
		return w.create(ctx, l, batches[i])
	})
}

// prepared postpones the changes and creations that have to wait, and returns the others.
func (w *write) prepared(ctx context.Context, l int, change, create []*codec.Operation) (changed, created []*codec.Operation, err error) {
	if l == codec.ELANInstances {
		create, err = w.withoutFormer(ctx, create)
		return change, create, err
	}
	if change, err = w.withoutLeaving(ctx, l, change); err != nil {
		return nil, nil, err
	}
	if create, err = w.withoutLeaving(ctx, l, create); err != nil {
		return nil, nil, err
	}
	return w.renewed(ctx, l, change, create)
}

// refsWritten reports whether no object that an entry refers to was refused. If one was, it
// marks the entry's object as refused too.
func (w *write) refsWritten(o *codec.Operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range o.Refs {
		if w.refused[ref] {
			w.refused[o.Head()] = true
			return false
		}
	}
	return true
}

func (w *write) each(ctx context.Context, all []*codec.Operation, do func(context.Context, *codec.Operation) error) error {
	return controller.Together(ctx, w.share, len(all), func(ctx context.Context, i int) error { return do(ctx, all[i]) })
}

// done records that an entry is as wanted; byUs if the controller has accepted our request.
func (w *write) done(o *codec.Operation, byUs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if byUs {
		w.accepted++
	}
	w.mirror.Put(o.Unit, o.List, o.Entry)
	delete(w.backend.failures, placeOf(o))
	delete(w.backend.postponed, placeOf(o))
}
