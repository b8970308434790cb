package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// errForeign is why an entry is left alone that is wanted.
var errForeign = errors.New("it is there and belongs to another; take that away, or give it another name")

// batches divides creations into those that go in one request each.
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

// body is the body of a request for entries of a list.
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

// entriesPerTimeout is how many entries a request may create for each Timeout.
const entriesPerTimeout = 200

// create creates entries in one request. If the controller does not take that, what there is
// is looked at, and the request taken apart until what is refused stands alone.
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
	rest, err := w.settle(ctx, l, all, err)
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

// settle sees which entries of a request that failed are there: those that are as they should
// be are done, those that may be made so are. It returns the others, unless it is one alone:
// then the failure is its.
func (w *write) settle(ctx context.Context, l int, all []*operation, failure error) (rest []*operation, err error) {
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
		return nil, w.judge(rest[0], failure)
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

// judge takes an answer about one entry for what it is.
func (w *write) judge(o *operation, err error) error {
	var answer *answerError
	if errors.As(err, &answer) && answer.status == http.StatusInternalServerError {
		return w.suspect(o, err)
	}
	w.reject(o, err)
	return nil
}

// change updates entries. What there is is looked at first: what another hand has added is
// not to be wiped.
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
		err = w.takeApart(ctx, all, found)
	}
	if err != nil {
		return err
	}
	return w.each(ctx, all, func(ctx context.Context, o *operation) error {
		if w.isRefused(o) { // it should have gone first
			return nil
		}
		return w.update(ctx, o, found[o.key()])
	})
}

// update writes one entry over what is there, if that may be; nothing is written if that is
// as it should be.
func (w *write) update(ctx context.Context, o *operation, there entry) error {
	if there != nil {
		if same(there.own(), o.entry) {
			w.done(o, false)
			return nil
		}
		if !o.there && !mayTake(there) {
			w.reject(o, errForeign)
			return nil
		}
	}
	full := *o
	full.entry = o.entry.own()
	if there != nil {
		full.entry.keep(there)
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
	return w.judge(o, err)
}

// removeAll deletes entries, and waits until the controller has taken apart what it made of
// them.
func (w *write) removeAll(ctx context.Context, l int, all []*operation) error {
	if l == elanInstances && len(all) > 0 {
		if _, err := w.lookTagged(ctx, keysOf(all)); err != nil {
			return err
		}
		if err := w.awaitEmpty(ctx, all); err != nil {
			return err
		}
	}
	were := w.asTheyAre(l, all)
	if err := w.each(ctx, all, w.remove); err != nil {
		return err
	}
	return w.awaitGone(ctx, all, func(o *operation) entry { return were[o] })
}

// asTheyAre are the entries that operations are about.
func (w *write) asTheyAre(l int, all []*operation) map[*operation]entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	are := make(map[*operation]entry, len(all))
	for _, o := range all {
		are[o] = w.mirror.at(o.unit)[l]
	}
	return are
}

// remove deletes one entry. That it is not there is as good.
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

// What becomes of an entry that is to be deleted.
type end int

const (
	stays   end = iota // for the controller failed, or refused it: that is noted
	deleted            // by us
	absent             // as the controller said at once
	unseen             // though the controller refused to delete it
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
	return stays, w.judge(o, fmt.Errorf("delete: %w", err))
}

// removed believes a controller that something is not there; verdict sees that it is ready.
func (w *write) removed(o *operation) {
	w.done(o, false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.believed = true
}
