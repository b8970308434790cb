package ovn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// errStale says that the database is not as the mirror has it.
var errStale = errors.New("the database was changed by another hand")

// step is the changes of one group that may be made together.
type step struct {
	head    netvirt.Key
	changes []netvirt.Change
}

// steps divides changes, in the order of netvirt.Sort, into steps that are safe
// in the order of the result: within deletions that follow each other, and
// within creations and updates that do, the changes of a group are drawn
// together to where its first stands. What a group refers to is of an earlier
// group, so it still comes first.
func steps(changes []netvirt.Change) []*step {
	var (
		all      []*step
		open     = map[netvirt.Key]*step{}
		deleting bool
	)
	for _, c := range changes {
		if gone := c.New == nil; gone != deleting {
			deleting = gone
			clear(open)
		}
		o := c.New
		if o == nil {
			o = c.Old
		}
		k := headOf(o)
		s := open[k]
		if s == nil {
			s = &step{head: k}
			open[k] = s
			all = append(all, s)
		}
		s.changes = append(s.changes, c)
	}
	return all
}

// write is one Write through a session whose mirror is read.
type write struct {
	*session
	timed func(context.Context) (context.Context, context.CancelFunc)
	// fresh: the mirror was read for this write, so what the server refuses now
	// it refuses for good.
	fresh    bool
	rejected netvirt.RejectedError
}

// run makes the steps, in transactions of at most batch steps each.
func (w *write) run(ctx context.Context, all []*step, batch int) error {
	chunks := slices.Chunk(all, batch)
	if !w.fresh {
		return w.flow(ctx, chunks)
	}
	for chunk := range chunks {
		if err := w.chunk(ctx, chunk); err != nil {
			return err
		}
	}
	if len(w.rejected.Keys) > 0 {
		return &w.rejected
	}
	return nil
}

// flow makes each chunk one transaction, and encodes the next while the server
// works. The mirror runs ahead of the database meanwhile: when anything fails,
// it is of no more use.
func (w *write) flow(ctx context.Context, chunks iter.Seq[[]*step]) error {
	flying := make(chan error, 1)
	flying <- nil
	for chunk := range chunks {
		ops, ahead, err := w.prepare(chunk)
		if err == nil {
			ahead.commit()
		}
		if failed := <-flying; failed != nil {
			return stale(failed)
		}
		if err != nil {
			return err
		}
		go func() { flying <- w.commit(ctx, ops) }()
	}
	return stale(<-flying)
}

// stale makes a refusal a reason to read the database and begin again.
func stale(err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// chunk makes the steps in one transaction. If the server refuses it, it is
// taken apart until what is refused stands alone.
func (w *write) chunk(ctx context.Context, all []*step) error {
	err := w.transaction(ctx, all)
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
	}
	if uuid := refused.duplicate(); uuid != "" {
		// A row of ours that is not marked as one any more.
		w.mirror.strays[uuid] = refused.op.table.empty(uuid)
		return w.chunk(ctx, all)
	}
	if len(all) == 1 {
		w.reject(all[0], err)
		return nil
	}
	for _, half := range [][]*step{all[:len(all)/2], all[len(all)/2:]} {
		if err := w.chunk(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

func (w *write) reject(s *step, err error) {
	for _, c := range s.changes {
		w.rejected.Keys = append(w.rejected.Keys, c.Key())
	}
	w.rejected.Err = errors.Join(w.rejected.Err, fmt.Errorf("write %s: %w", s.head, err))
}

// transaction makes the steps, or none of them.
func (w *write) transaction(ctx context.Context, all []*step) error {
	ops, ahead, err := w.prepare(all)
	if err != nil {
		return err
	}
	if err := w.commit(ctx, ops); err != nil {
		return err
	}
	ahead.commit()
	return nil
}

// prepare encodes the steps, and returns the mirror as it will be.
func (w *write) prepare(all []*step) ([]operation, *stage, error) {
	ahead := w.mirror.stage()
	for _, s := range all {
		for _, c := range s.changes {
			if err := ahead.apply(c); err != nil {
				if len(w.rejected.Keys) > 0 {
					continue // it refers to what was rejected
				}
				return nil, nil, fmt.Errorf("%w: %w", errStale, err)
			}
		}
	}
	return ahead.operations().list(), ahead, nil
}

// commit makes a transaction, and sees that it changed what it was to change.
func (w *write) commit(ctx context.Context, ops []operation) error {
	if len(ops) == 0 {
		return nil
	}
	ctx, cancel := w.timed(ctx)
	defer cancel()
	results, err := w.transact(ctx, ops)
	if err != nil {
		return err
	}
	for i, op := range ops {
		changes := op.verb == updateRow || op.verb == mutateRow
		if changes && results[i].count == 0 {
			return fmt.Errorf("%w: %s has no row %s", errStale, op.table.name, op.uuid)
		}
	}
	return nil
}
