package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// errExternal is the error for a wanted entry that exists and belongs to another writer.
var errExternal = errors.New("an external entry with this name exists; delete that entry, or use another name")

// batches divides creations into batches of one request each. An entry that cannot be written as JSON has a batch of its own, and fails there.
func (w *write) batches(l int, all []*codec.Operation) [][]*codec.Operation {
	var (
		out  [][]*codec.Operation
		size int
	)
	for _, o := range all {
		body, err := w.Lists[l].Body(o.Entry)
		n := len(body)
		if err != nil {
			n = w.backend.cfg.BatchBytes + 1
		}
		last := len(out) - 1
		if last < 0 || !w.Dialect.Many || len(out[last]) >= w.backend.cfg.BatchEntries || size+n > w.backend.cfg.BatchBytes {
			out = append(out, nil)
			last, size = last+1, 0
		}
		out[last] = append(out[last], o)
		size += n
	}
	return out
}

// create creates entries in one request. If the controller refuses it, create reads the
// entries, and halves the rest until it has found each entry that is refused.
func (w *write) create(ctx context.Context, l int, all []*codec.Operation) error {
	err := w.Post(ctx, &w.Lists[l], entriesOf(all)...)
	if err == nil {
		for _, o := range all {
			w.done(o, true)
		}
		return nil
	}
	if !controller.IsRefusal(err) {
		return err
	}
	rest, err := w.reread(ctx, l, all, err)
	switch {
	case err != nil || len(rest) == 0:
		return err
	case len(rest) < len(all):
		return w.create(ctx, l, rest)
	}
	for _, half := range [][]*codec.Operation{rest[:len(rest)/2], rest[len(rest)/2:]} {
		if err := w.create(ctx, l, half); err != nil {
			return err
		}
	}
	return nil
}

// reread reads the entries of a request that was refused. It updates those that exist, and
// returns those that do not. If the request had only one entry, and it does not exist, the
// refusal is its own: reread records that.
func (w *write) reread(ctx context.Context, l int, all []*codec.Operation, failure error) (rest []*codec.Operation, err error) {
	found, err := w.Look(ctx, &w.Lists[l], keysOf(all))
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		there := found[o.Key()]
		if there == nil {
			rest = append(rest, o)
			continue
		}
		if err := w.update(ctx, o, there); err != nil {
			return nil, err
		}
	}
	if len(rest) == 1 && len(all) == 1 {
		return nil, w.refuse(ctx, rest[0], failure)
	}
	return rest, nil
}

func entriesOf(all []*codec.Operation) []codec.Entry {
	entries := make([]codec.Entry, len(all))
	for i, o := range all {
		entries[i] = o.Entry
	}
	return entries
}

func keysOf(all []*codec.Operation) []string {
	keys := make([]string, len(all))
	for i, o := range all {
		keys[i] = o.Key()
	}
	return keys
}

// refuse records the refusal of one entry. A status of 500 may also be a failure of the controller, and 409 a conflict with another
// transaction, for example with our own request that was not answered in time.
func (w *write) refuse(ctx context.Context, o *codec.Operation, err error) error {
	var answer *controller.AnswerError
	if errors.As(err, &answer) && (answer.Status == http.StatusInternalServerError || answer.Status == http.StatusConflict) {
		return w.fail(ctx, o, err)
	}
	w.reject(o, err)
	return nil
}

// change updates entries. It reads them first, to keep the leaves of other writers.
func (w *write) change(ctx context.Context, l int, all []*codec.Operation) error {
	if len(all) == 0 {
		return nil
	}
	look := func(ctx context.Context, keys []string) (map[string]codec.Entry, error) {
		return w.Look(ctx, &w.Lists[l], keys)
	}
	if l == codec.ELANInstances {
		look = w.lookTagged
	}
	found, err := look(ctx, keysOf(all))
	if err == nil {
		err = w.removeForRecreation(ctx, all, found)
	}
	if err != nil {
		return err
	}
	return w.each(ctx, all, func(ctx context.Context, o *codec.Operation) error {
		if w.isRefused(o) { // its deletion was refused
			return nil
		}
		return w.update(ctx, o, found[o.Key()])
	})
}

// update replaces one entry, given the entry that exists. It writes nothing if that is
// already as wanted, or belongs to another writer.
func (w *write) update(ctx context.Context, o *codec.Operation, there codec.Entry) error {
	if there != nil {
		if codec.Same(there.Own(), o.Entry) {
			w.done(o, false)
			return nil
		}
		if !o.There && !codec.MayTake(there) {
			w.reject(o, errExternal)
			return nil
		}
	}
	full := o.Entry.Own()
	if there != nil {
		full.Keep(there)
		if err := w.beforeSecured(ctx, full, there); err != nil {
			return err
		}
	}
	err := w.Put(ctx, &w.Lists[o.List], full)
	if err == nil {
		w.done(o, true)
		return nil
	}
	if !controller.IsRefusal(err) {
		return err
	}
	now, lookErr := w.Look(ctx, &w.Lists[o.List], []string{o.Key()})
	if lookErr != nil {
		return lookErr
	}
	if e := now[o.Key()]; e != nil && codec.Same(e.Own(), o.Entry) {
		w.done(o, true)
		return nil
	}
	return w.refuse(ctx, o, err)
}

// removeAll deletes entries, without those that have to wait.
func (w *write) removeAll(ctx context.Context, l int, all []*codec.Operation) (err error) {
	switch l {
	case codec.ELANInstances:
		all, err = w.withoutMembers(ctx, all)
	case codec.VPNInstances:
		all, err = w.withoutLeavingMembers(ctx, all)
	case codec.AccessLists:
		all, err = w.withoutUsed(ctx, all)
	default:
		all, err = w.withoutLeaving(ctx, l, all)
	}
	if err != nil {
		return err
	}
	before := w.before(l, all)
	err = w.each(ctx, all, w.remove)
	for _, o := range all {
		if !w.isRefused(o) {
			w.leave(before[o], len(all))
		}
	}
	return err
}

// before returns the mirror's entries of operations.
func (w *write) before(l int, all []*codec.Operation) map[*codec.Operation]codec.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := make(map[*codec.Operation]codec.Entry, len(all))
	for _, o := range all {
		entries[o] = w.mirror.At(o.Unit)[l]
	}
	return entries
}

// remove deletes one entry. It is not an error if the entry does not exist.
func (w *write) remove(ctx context.Context, o *codec.Operation) error {
	end, err := w.erase(ctx, o)
	switch end {
	case deleted:
		w.done(o, true)
	case absent:
		w.removed(o)
	case unseen:
		w.done(o, false)
	case stays:
	}
	return err
}

// end is the result of a deletion.
type end int

const (
	stays   end = iota // the controller failed, or refused it, which is recorded
	deleted            // by our request
	absent             // the controller answered that it does not exist
	unseen             // the controller refused the deletion, but the entry does not exist
)

// erase deletes one entry.
func (w *write) erase(ctx context.Context, o *codec.Operation) (end, error) {
	err := w.Delete(ctx, &w.Lists[o.List], o.Key())
	switch {
	case err == nil:
		return deleted, nil
	case w.Missing(err):
		return absent, nil
	case !controller.IsRefusal(err):
		return stays, err
	}
	now, lookErr := w.Look(ctx, &w.Lists[o.List], []string{o.Key()})
	if lookErr != nil {
		return stays, lookErr
	}
	if now[o.Key()] == nil {
		return unseen, nil
	}
	return stays, w.refuse(ctx, o, fmt.Errorf("delete: %w", err))
}

// removed records that an entry does not exist, as the controller answered; result checks
// that the controller was ready.
func (w *write) removed(o *codec.Operation) {
	w.done(o, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.absent = true
}
