package ovn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// errStale reports that the database differs from the mirror.
var errStale = errors.New("another program has changed the database")

// step holds changes of one group that can be made together.
type step struct {
	head    netvirt.Key
	changes []netvirt.Change
}

// steps divides changes, in the order of netvirt.Sort, into steps that are safe in the
// returned order. A run is a sequence of deletions only, or of creations and updates
// only. Within a run, all changes of a group move to its first change. This is safe
// because a group refers only to groups that come earlier in the order. An InterfaceACL of an existing
// interface has a step of its own, so that it can change together with others (see transactions).
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
		k := identity.HeadOf(c.Object())
		s := open[k]
		if s == nil || c.New != nil && c.Key().Kind == netvirt.KindInterfaceACL && !s.createsInterface() {
			s = &step{head: k}
			open[k] = s
			all = append(all, s)
		}
		s.changes = append(s.changes, c)
	}
	return all
}

// createsInterface reports whether the step creates the interface of its group.
func (s *step) createsInterface() bool {
	return slices.ContainsFunc(s.changes, func(c netvirt.Change) bool { return c.Old == nil && c.Key().Kind == netvirt.KindInterface })
}

// policyBatch is how many times more steps of policies than others are in one transaction: most
// interfaces are only links of theirs.
const policyBatch = 100

// transactions divides the steps of one write into transactions of at most batch steps. Steps of
// policies are not counted. They are together in one transaction, up to policyBatch times as many: a
// connection that the policies before and after the write allow then stays possible. This transaction
// comes before the first interface is created, and before ACLs and remote groups are deleted.
func transactions(all []*step, batch int) [][]*step {
	var policies, others []*step
	at := -1
	for _, s := range all {
		if s.isOfPolicies() {
			policies = append(policies, s)
			continue
		}
		if at < 0 && s.comesAfterPolicies() {
			at = len(others)
		}
		others = append(others, s)
	}
	if at < 0 {
		at = len(others)
	}
	var (
		out     [][]*step
		counted [2]int // steps in the last transaction: of policies, others
	)
	add := func(some []*step, kind, most int) {
		for _, s := range some {
			if len(out) == 0 || counted[kind] == most {
				out, counted = append(out, nil), [2]int{}
			}
			out[len(out)-1] = append(out[len(out)-1], s)
			counted[kind]++
		}
	}
	add(others[:at], 1, batch)
	add(policies, 0, policyBatch*batch)
	add(others[at:], 1, batch)
	return out
}

// isOfPolicies reports whether a step changes what policies mean for existing interfaces: it creates or
// updates an ACL, a remote group or an egress IP, or changes an InterfaceACL alone.
func (s *step) isOfPolicies() bool {
	switch s.head.Kind {
	case netvirt.KindACL, netvirt.KindRemoteGroup, netvirt.KindEgressIP:
		return s.changes[0].New != nil
	case netvirt.KindInterface:
		return !slices.ContainsFunc(s.changes, func(c netvirt.Change) bool { return c.Key().Kind != netvirt.KindInterfaceACL })
	}
	return false
}

// comesAfterPolicies reports whether a step must come after the steps of policies: it creates or updates
// an interface, or deletes an ACL or a remote group.
func (s *step) comesAfterPolicies() bool {
	if s.changes[0].New == nil {
		return s.head.Kind == netvirt.KindACL || s.head.Kind == netvirt.KindRemoteGroup
	}
	return s.head.Kind == netvirt.KindInterface
}

// stepsPerTimeout is the number of steps of a transaction for which it gets the timeout once more: a
// slow server must be able to end a large one.
const stepsPerTimeout = 1000

// write is one call of Write, on a session whose mirror has been read.
type write struct {
	*session
	timeout time.Duration // of a transaction with fewer steps than stepsPerTimeout
	// fresh reports whether the mirror was read for this write, or the layout changes. Then a refusal of the
	// server becomes a rejection. Otherwise it may be caused by an old mirror.
	fresh    bool
	rejected netvirt.RejectedError
	// counted makes each transaction increment nb_cfg of NB_Global, which asks OVN to report when it has the transaction.
	counted bool
	// ahead are the steps whose switches each transaction adds.
	ahead []*step
	// whole refuses the steps of a transaction if one of them refers to a rejected object. Otherwise only that step is left out.
	whole bool
}

// run makes transactions of steps.
func (w *write) run(ctx context.Context, chunks [][]*step) error {
	if !w.fresh {
		return w.flow(ctx, chunks)
	}
	for _, chunk := range chunks {
		if err := w.chunk(ctx, chunk); err != nil {
			return err
		}
	}
	if len(w.rejected.Keys) > 0 {
		return &w.rejected
	}
	return nil
}

// flow makes each chunk one transaction, and encodes the next chunk while the server
// works. Meanwhile the mirror is ahead of the database, so the caller must drop it
// after an error.
func (w *write) flow(ctx context.Context, chunks [][]*step) error {
	flying := make(chan error, 1)
	flying <- nil
	for _, chunk := range chunks {
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
		go func() { flying <- w.commit(ctx, ops, len(chunk)) }()
	}
	return stale(<-flying)
}

// stale turns a refusal into errStale: the caller reads the database and starts again.
func stale(err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// chunk makes the steps in one transaction. If the server refuses it, chunk halves the
// steps until it has found each step that is refused.
func (w *write) chunk(ctx context.Context, all []*step) error {
	err := w.transaction(ctx, all)
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
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
	err = w.commit(ctx, ops, len(all))
	var refused *refusal
	if errors.As(err, &refused) && refused.duplicate() != "" {
		if _, known := w.mirror.strays[refused.duplicate()]; !known {
			// A row of ours that has lost its marks.
			w.mirror.strays[refused.duplicate()] = refused.op.Table.Row(refused.duplicate())
			return w.transaction(ctx, all)
		}
	}
	if err == nil {
		ahead.commit()
	}
	return err
}

// prepare encodes the steps. It returns the operations, and the stage to commit after
// they have succeeded.
func (w *write) prepare(all []*step) ([]ovsdb.Operation, *stage, error) {
	ahead := w.mirror.stage()
	for _, s := range all {
		if err := ahead.apply(s); err != nil {
			if len(w.rejected.Keys) > 0 && w.whole {
				return nil, nil, &refusal{reason: "an object was rejected", details: err.Error()}
			}
			if len(w.rejected.Keys) > 0 {
				continue // it refers to a rejected object
			}
			return nil, nil, fmt.Errorf("%w: %w", errStale, err)
		}
	}
	for _, s := range w.ahead {
		ahead.addSwitch(s)
	}
	return ahead.transaction().Operations(), ahead, nil
}

// commit makes the transaction of a number of steps. It returns errStale if an operation changed no row.
func (w *write) commit(ctx context.Context, ops []ovsdb.Operation, steps int) error {
	if len(ops) == 0 {
		return nil
	}
	if w.counted {
		ops = append(ops, ovsdb.NewIncrement(nb.NBGlobalTable, "nb_cfg"))
	}
	more := int32((steps + len(w.ahead)) / stepsPerTimeout)
	ctx, cancel := context.WithTimeout(ctx, w.timeout*time.Duration(1+more))
	defer cancel()
	w.large.Add(more)
	defer w.large.Add(-more)
	results, err := w.transact(ctx, ops)
	if err != nil {
		return err
	}
	for i, op := range ops {
		changes := op.Verb == ovsdb.Update || op.Verb == ovsdb.Mutate
		if changes && results[i].Count == 0 {
			return fmt.Errorf("%w: %s has no row %s", errStale, op.Table.Name, op.UUID)
		}
	}
	return nil
}
