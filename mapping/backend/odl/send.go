package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// errExternal is the error for a wanted entry that exists and belongs to another writer.
var errExternal = errors.New("an external entry with this name exists; delete that entry, or use another name")

// batches divides creations into batches of one request each.
func (w *write) batches(l int, all []*operation) [][]*operation {
	var (
		out  [][]*operation
		size int
	)
	for _, o := range all {
		n := len(w.body(l, o))
		last := len(out) - 1
		if last < 0 || !w.dialect.many || len(out[last]) >= w.cfg.BatchEntries || size+n > w.cfg.BatchBytes {
			out = append(out, nil)
			last, size = last+1, 0
		}
		out[last] = append(out[last], o)
		size += n
	}
	return out
}

// body returns the body of a request for entries of a list.
func (w *write) body(l int, all ...*operation) []byte {
	entries := make([]entry, len(all))
	for i, o := range all {
		entries[i] = o.entry
	}
	body, err := json.Marshal(map[string][]entry{w.lists[l].module + ":" + w.lists[l].name: entries})
	if err != nil {
		panic("odl: an entry of a list has no JSON form: " + err.Error())
	}
	return body
}

// entriesPerTimeout is the number of entries for which a request has one Timeout.
const entriesPerTimeout = 200

// create creates entries in one request. If the controller refuses it, create reads the
// entries, and halves the rest until it has found each entry that is refused.
func (w *write) create(ctx context.Context, l int, all []*operation) error {
	q := w.request(http.MethodPost, w.dialect.container(&w.lists[l]), w.body(l, all...))
	q.timeout *= time.Duration(1 + (len(all)-1)/entriesPerTimeout)
	err := w.send(ctx, q, nil)
	if err == nil {
		for _, o := range all {
			w.done(o, true)
		}
		return nil
	}
	if !isRefusal(err) {
		return err
	}
	rest, err := w.reread(ctx, l, all, err)
	switch {
	case err != nil || len(rest) == 0:
		return err
	case len(rest) < len(all):
		return w.create(ctx, l, rest)
	}
	for _, half := range [][]*operation{rest[:len(rest)/2], rest[len(rest)/2:]} {
		if err := w.create(ctx, l, half); err != nil {
			return err
		}
	}
	return nil
}

// reread reads the entries of a request that was refused. It updates those that exist, and
// returns those that do not. If the request had only one entry, and it does not exist, the
// refusal is its own: reread records that.
func (w *write) reread(ctx context.Context, l int, all []*operation, failure error) (rest []*operation, err error) {
	found, err := w.look(ctx, &w.lists[l], keysOf(all))
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		there := found[o.key()]
		if there == nil {
			rest = append(rest, o)
			continue
		}
		if err := w.update(ctx, o, there); err != nil {
			return nil, err
		}
	}
	if len(rest) == 1 && len(all) == 1 {
		return nil, w.refuse(rest[0], failure)
	}
	return rest, nil
}

func keysOf(all []*operation) []string {
	keys := make([]string, len(all))
	for i, o := range all {
		keys[i] = o.key()
	}
	return keys
}

// refuse records the refusal of one entry. A status of 500 may also be a failure of the
// controller.
func (w *write) refuse(o *operation, err error) error {
	var answer *answerError
	if errors.As(err, &answer) && answer.status == http.StatusInternalServerError {
		return w.fail(o, err)
	}
	w.reject(o, err)
	return nil
}

// change updates entries. It reads them first, to keep the leaves of other writers.
func (w *write) change(ctx context.Context, l int, all []*operation) error {
	if len(all) == 0 {
		return nil
	}
	look := func(ctx context.Context, keys []string) (map[string]entry, error) {
		return w.look(ctx, &w.lists[l], keys)
	}
	if l == elanInstances {
		look = w.lookTagged
	}
	found, err := look(ctx, keysOf(all))
	if err == nil {
		err = w.removeForRecreation(ctx, all, found)
	}
	if err != nil {
		return err
	}
	return w.each(ctx, all, func(ctx context.Context, o *operation) error {
		if w.isRefused(o) { // its deletion was refused
			return nil
		}
		return w.update(ctx, o, found[o.key()])
	})
}

// update replaces one entry, given the entry that exists. It writes nothing if that is
// already as wanted, or belongs to another writer.
func (w *write) update(ctx context.Context, o *operation, there entry) error {
	if there != nil {
		if same(there.own(), o.entry) {
			w.done(o, false)
			return nil
		}
		if !o.there && !mayTake(there) {
			w.reject(o, errExternal)
			return nil
		}
	}
	full := *o
	full.entry = o.entry.own()
	if there != nil {
		full.entry.keep(there)
		if err := w.beforeSecured(ctx, &full, there); err != nil {
			return err
		}
	}
	err := w.send(ctx, w.request(http.MethodPut, w.dialect.entry(&w.lists[o.list], o.key()), w.body(o.list, &full)), nil)
	if err == nil {
		w.done(o, true)
		return nil
	}
	if !isRefusal(err) {
		return err
	}
	now, lookErr := w.look(ctx, &w.lists[o.list], []string{o.key()})
	if lookErr != nil {
		return lookErr
	}
	if e := now[o.key()]; e != nil && same(e.own(), o.entry) {
		w.done(o, true)
		return nil
	}
	return w.refuse(o, err)
}

// removeAll deletes entries, without those that have to wait.
func (w *write) removeAll(ctx context.Context, l int, all []*operation) (err error) {
	switch l {
	case elanInstances:
		all, err = w.withoutMembers(ctx, all)
	case vpnInstances:
		all, err = w.withoutLeavingMembers(ctx, all)
	case accessLists:
		all, err = w.withoutUsed(ctx, all)
	default:
		all, err = w.withoutLeaving(ctx, l, all)
	}
	if err != nil {
		return err
	}
	before := w.entriesOf(l, all)
	err = w.each(ctx, all, w.remove)
	for _, o := range all {
		if !w.isRefused(o) {
			w.leave(before[o], len(all))
		}
	}
	return err
}

// entriesOf returns the mirror's entries of operations.
func (w *write) entriesOf(l int, all []*operation) map[*operation]entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := make(map[*operation]entry, len(all))
	for _, o := range all {
		entries[o] = w.mirror.at(o.unit)[l]
	}
	return entries
}

// remove deletes one entry. It is not an error if the entry does not exist.
func (w *write) remove(ctx context.Context, o *operation) error {
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
func (w *write) erase(ctx context.Context, o *operation) (end, error) {
	err := w.send(ctx, w.request(http.MethodDelete, w.dialect.entry(&w.lists[o.list], o.key()), nil), nil)
	var answer *answerError
	switch {
	case err == nil:
		return deleted, nil
	case !errors.As(err, &answer):
		return stays, err
	case w.dialect.missing(answer):
		return absent, nil
	case !answer.refuses():
		return stays, err
	}
	now, lookErr := w.look(ctx, &w.lists[o.list], []string{o.key()})
	if lookErr != nil {
		return stays, lookErr
	}
	if now[o.key()] == nil {
		return unseen, nil
	}
	return stays, w.refuse(o, fmt.Errorf("delete: %w", err))
}

// removed records that an entry does not exist, as the controller answered; result checks
// that the controller was ready.
func (w *write) removed(o *operation) {
	w.done(o, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.absent = true
}
