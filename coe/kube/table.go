package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coe-bridge/coe-bridge/coe/state"
)

// object is a Kubernetes object.
type object interface {
	runtime.Object
	metav1.Object
}

// entry is a converted object.
type entry[V any] struct {
	uid    string
	value  V
	exists bool   // false: the object was deleted or is irrelevant
	after  func() // called after the step; may be nil
}

// table applies one resource to the Store. It keeps the current values, and writes only
// changes: an event that does not change the converted value is ignored. The result does not
// depend on the order or the number of events.
type table[O object, V any] struct {
	*tables
	// convert converts an object; false if it is irrelevant.
	convert func(O) (V, bool)
	// prepare, if not nil, completes a new value from other tables.
	prepare func(V)
	// merge returns the value to keep for an object with a former and a new value, and
	// whether it has changed.
	merge  func(before, now V) (V, bool)
	put    func(*state.Tx, V)
	remove func(*state.Tx, V)
	// settle, if not nil, is called after a step with changes.
	settle func(*state.Tx)
	// seen and gone, if not nil, return a function to call after the step, for an object that
	// was read, and for an object that a list lacks.
	seen func(o O, deleted bool) func()
	gone func(V) func()

	// optional is set for a resource that the origin is complete without.
	optional bool
	// complete is called within the step that applies the first list of a round.
	complete func(*state.Tx)
	listed   int          // the last round that it was listed in
	values   map[string]V // current values by UID
}

// read converts an object of a list or an event.
func (t *table[O, V]) read(o runtime.Object, deleted bool) (entry[V], error) {
	typed, ok := o.(O)
	if !ok {
		return entry[V]{}, fmt.Errorf("read object: got a %T, want a %T", o, *new(O))
	}
	e := entry[V]{uid: uid(typed.GetUID())}
	if t.seen != nil {
		e.after = t.seen(typed, deleted)
	}
	if !deleted {
		e.value, e.exists = t.convert(typed)
	}
	return e, nil
}

// apply applies one event.
func (t *table[O, V]) apply(o runtime.Object, deleted bool) error {
	e, err := t.read(o, deleted)
	if err != nil {
		return err
	}
	t.store.Update(func(tx *state.Tx) {
		if t.update(tx, e) && t.settle != nil {
			t.settle(tx)
		}
	})
	runAfter(e)
	return nil
}

// replace applies the list of a round. Deletions come first: a new object may have the name of
// a deleted one.
func (t *table[O, V]) replace(entries []entry[V], round int) {
	var gone []entry[V]
	t.store.Update(func(tx *state.Tx) {
		gone = t.missing(entries)
		for _, e := range gone {
			t.update(tx, e)
		}
		for _, e := range entries {
			t.update(tx, e)
		}
		if t.settle != nil {
			t.settle(tx)
		}
		if t.listed != round && t.rounds.isCurrent(round) {
			t.listed = round
			t.complete(tx)
		}
	})
	runAfter(gone...)
	runAfter(entries...)
}

// missing returns deletions for the values that are not among the entries.
func (t *table[O, V]) missing(entries []entry[V]) []entry[V] {
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		there[e.uid] = true
	}
	var missing []entry[V]
	for uid, v := range t.values {
		if there[uid] {
			continue
		}
		e := entry[V]{uid: uid}
		if t.gone != nil {
			e.after = t.gone(v)
		}
		missing = append(missing, e)
	}
	return missing
}

func runAfter[V any](entries ...entry[V]) {
	for _, e := range entries {
		if e.after != nil {
			e.after()
		}
	}
}

// update applies one entry, and reports whether it was a change.
func (t *table[O, V]) update(tx *state.Tx, e entry[V]) bool {
	before, known := t.values[e.uid]
	if !e.exists {
		if known {
			delete(t.values, e.uid)
			t.remove(tx, before)
		}
		return known
	}
	now, changed := e.value, true
	if t.prepare != nil {
		t.prepare(now)
	}
	if known {
		now, changed = t.merge(before, now)
	}
	t.values[e.uid] = now
	if changed {
		t.put(tx, now)
	}
	return changed
}
