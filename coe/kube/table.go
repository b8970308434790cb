package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coe-bridge/coe-bridge/coe"
)

// object is a Kubernetes object.
type object interface {
	runtime.Object
	metav1.Object
}

// entry is an object as it is said.
type entry[V any] struct {
	uid   string
	value V
	said  bool   // not: the object is gone, or means nothing here
	after func() // the step in which it is said; nil for nothing
}

// table tells the store of one resource. It knows what was said last, and says
// only what is new: an event that does not alter what an object means to us is no
// change. The order in which objects are said, and how often, does not matter.
type table[O object, V any] struct {
	*tables
	// convert returns what an object means, or false: nothing.
	convert func(O) (V, bool)
	// prepare, if not nil, adds to a new value what the other tables know.
	prepare func(V)
	// merge returns what is to be remembered of an object whose meaning was before
	// and is now, and whether that is to be said.
	merge  func(before, now V) (V, bool)
	put    func(*coe.Tx, V)
	remove func(*coe.Tx, V)
	// settle, if not nil, is called after a step that said something.
	settle func(*coe.Tx)
	// seen and gone, if not nil, return what is to be done after the step for an
	// object that was read, and for one that a list lacks.
	seen func(o O, deleted bool) func()
	gone func(V) func()

	// optional is set for a resource that nothing in the network is made from. The
	// bridge works without it, so the source is complete without it too.
	optional bool
	listed   int          // the last round that it was listed in
	said     map[string]V // by uid
}

// read reads an object that was listed, or that an event is about.
func (t *table[O, V]) read(o runtime.Object, deleted bool) (entry[V], error) {
	typed, ok := o.(O)
	if !ok {
		return entry[V]{}, fmt.Errorf("read object: it is a %T, want a %T", o, *new(O))
	}
	e := entry[V]{uid: uid(typed.GetUID())}
	if t.seen != nil {
		e.after = t.seen(typed, deleted)
	}
	if !deleted {
		e.value, e.said = t.convert(typed)
	}
	return e, nil
}

// apply says what one event tells.
func (t *table[O, V]) apply(o runtime.Object, deleted bool) error {
	e, err := t.read(o, deleted)
	if err != nil {
		return err
	}
	t.store.Update(func(tx *coe.Tx) {
		if t.say(tx, e) && t.settle != nil {
			t.settle(tx)
		}
	})
	conclude(e)
	return nil
}

// replace says all that there is, as listed in a round. What was said and is not among
// it is taken back, first: a name may have passed on to a new object.
func (t *table[O, V]) replace(entries []entry[V], round int) {
	var gone []entry[V]
	t.store.Update(func(tx *coe.Tx) {
		gone = t.missing(entries)
		for _, e := range gone {
			t.say(tx, e)
		}
		for _, e := range entries {
			t.say(tx, e)
		}
		if t.settle != nil {
			t.settle(tx)
		}
		if !t.optional && t.listed != round && t.rounds.counts(round) {
			t.listed = round
			t.countListed(tx)
		}
	})
	conclude(gone...)
	conclude(entries...)
}

// missing are entries for what was said and is not among those given.
func (t *table[O, V]) missing(entries []entry[V]) []entry[V] {
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		there[e.uid] = true
	}
	var missing []entry[V]
	for uid, v := range t.said {
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

func conclude[V any](entries ...entry[V]) {
	for _, e := range entries {
		if e.after != nil {
			e.after()
		}
	}
}

// say says one object where it is another than it was, and whether it was.
func (t *table[O, V]) say(tx *coe.Tx, e entry[V]) bool {
	before, known := t.said[e.uid]
	if !e.said {
		if known {
			delete(t.said, e.uid)
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
	t.said[e.uid] = now
	if changed {
		t.put(tx, now)
	}
	return changed
}
