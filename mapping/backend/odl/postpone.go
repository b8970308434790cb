package odl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Some operations must not be made while the operational state of former entries exists. They are postponed, and the
// caller of Write repeats them; others do not wait for them. After a time they are made in any case: the state may
// never go.

// forgetAfter is the time between two writes after which a postponed operation counts as a new one, if nobody has repeated it. How long
// the writes take does not count: the network may be slow, and the operations wait for it.
const forgetAfter = 10 * time.Second

// postponement is when the last write that postponed an operation ended, and until when it may be postponed.
type postponement struct{ last, until time.Time }

// mayPostpone reports whether an operation may wait longer, which is one of n. It may wait for a time since it was postponed first.
func (w *write) mayPostpone(o *codec.Operation, limit time.Duration, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p, found := w.backend.postponed[placeOf(o)]
	if !found || w.begun.Sub(p.last) > forgetAfter {
		p.until = now.Add(limit + time.Duration(n)*renewEach)
	}
	if now.After(p.until) {
		delete(w.backend.postponed, placeOf(o))
		w.backend.log.Warn("OpenDaylight has not processed written or deleted entries in time; the write goes on", "list", w.Lists[o.List].Name, "entry", o.Key())
		return false
	}
	p.last = now
	w.backend.postponed[placeOf(o)] = p
	return true
}

// postpone records that an operation is not made in this write.
func (w *write) postpone(o *codec.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, o)
	w.lateUnits[o.Unit] = true
	if o.Entry != nil {
		w.lateHeads[o.Head()] = true
	}
}

// postponeSome removes the operations that have to wait from all, and postpones them.
func (w *write) postponeSome(all []*codec.Operation, limit time.Duration, waits func(*codec.Operation) bool) []*codec.Operation {
	n := len(all)
	return slices.DeleteFunc(all, func(o *codec.Operation) bool {
		if !waits(o) || !w.mayPostpone(o, limit, n) {
			return false
		}
		w.postpone(o)
		return true
	})
}

// needsLate reports whether an entry must wait for an operation that was postponed: of an entry that it refers to, or of
// the same interface.
func (w *write) needsLate(o *codec.Operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lateUnits[o.Unit] || slices.ContainsFunc(o.Refs, func(ref netvirt.Key) bool { return w.lateHeads[ref] })
}

// end records when the write has ended, for the operations that it has postponed.
func (w *write) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.late {
		if p, found := w.backend.postponed[placeOf(o)]; found {
			p.last = time.Now()
			w.backend.postponed[placeOf(o)] = p
		}
	}
}

// errUsers is the error for postponed operations on entries that use a changed object. The next Read finds the entries damaged.
var errUsers = errors.New("entries that use changed objects wait until the network has removed deleted ones")

// deferred returns the error that names the changes of postponed operations, with what the datastore has of them. A change of another
// unit is not one of them: it is made. If nothing else would lead to a unit again, deferred forgets the mirror and returns errUsers.
func (w *write) deferred() error {
	if len(w.late) == 0 {
		return nil
	}
	have, again := map[netvirt.Key]netvirt.Object{}, map[codec.Unit]bool{}
	for _, o := range w.late {
		objects := netvirt.Model{}
		objects.Add(w.mirror.Decode(o.Unit, w.mirror.At(o.Unit), nil)...)
		for _, c := range o.Own() {
			k := c.Key()
			have[k] = objects[k]
			if objects[k] != c.New {
				again[o.Unit] = true
			}
			if objects[k] != nil {
				w.mirror.Learn(netvirt.Change{New: objects[k]}) // operations has learnt the change
			}
		}
	}
	if slices.ContainsFunc(w.late, func(o *codec.Operation) bool { return !again[o.Unit] }) {
		w.backend.mirror = nil
		return fmt.Errorf("write to OpenDaylight: %w", errUsers)
	}
	return &netvirt.DeferredError{Have: have}
}

// leave records that the operational state of a deleted entry may still exist.
func (w *write) leave(was codec.Entry, n int) {
	d, ok := departureOf(was)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.backend.leaving[d.name]
	if d.elan == "" {
		d.elan = before.elan
	}
	d.vpns = append(d.vpns, before.vpns...)
	d.until = time.Now().Add(renewWait + time.Duration(n)*renewEach)
	w.backend.leaving[d.name] = d
}

// areLeaving returns the names of operations for which operational state of deleted entries still exists.
func (w *write) areLeaving(ctx context.Context, all []*codec.Operation) (map[string]bool, error) {
	var some []departure
	w.mu.Lock()
	for _, o := range all {
		if d, found := w.backend.leaving[o.Key()]; found {
			some = append(some, d)
		}
	}
	w.mu.Unlock()
	return w.stillLeaving(ctx, some)
}

// stillLeaving returns the names of departures for which operational state still exists, and forgets the others.
func (w *write) stillLeaving(ctx context.Context, some []departure) (map[string]bool, error) {
	if len(some) == 0 {
		return nil, nil
	}
	left, err := w.still(ctx, some)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range some {
		delete(w.backend.leaving, d.name)
	}
	names := map[string]bool{}
	for _, d := range left {
		if time.Now().After(d.until) {
			w.backend.log.Warn("OpenDaylight has not processed deleted entries in time; the write goes on", "interface", d.name)
			continue
		}
		w.backend.leaving[d.name] = d
		names[d.name] = true
	}
	return names, nil
}

// withoutLeaving postpones the operations that have to wait for the operational state of deleted entries: deletions of interfaces,
// which Netvirt needs to remove that, and new entries, which Netvirt would confuse with the deleted ones of the same names.
func (w *write) withoutLeaving(ctx context.Context, l int, all []*codec.Operation) ([]*codec.Operation, error) {
	if l != codec.Interfaces && l != codec.ELANInterfaces && l != codec.VPNInterfaces {
		return all, nil
	}
	leaving, err := w.areLeaving(ctx, all)
	return slices.DeleteFunc(all, func(o *codec.Operation) bool {
		if !leaving[o.Key()] || o.Entry == nil && l != codec.Interfaces {
			return false
		}
		if o.Entry == nil {
			w.noteRemoval(o)
		}
		w.postpone(o)
		return true
	}), err
}

// withoutLeavingMembers postpones deletions of vpn-instances with deleted members whose operational state still exists.
func (w *write) withoutLeavingMembers(ctx context.Context, all []*codec.Operation) ([]*codec.Operation, error) {
	members := map[string][]departure{}
	var some []departure
	w.mu.Lock()
	for _, d := range w.backend.leaving {
		for _, vpn := range d.vpns {
			members[vpn.Name] = append(members[vpn.Name], d)
			if slices.ContainsFunc(all, func(o *codec.Operation) bool { return o.Key() == vpn.Name }) {
				some = append(some, d)
			}
		}
	}
	w.mu.Unlock()
	leaving, err := w.stillLeaving(ctx, some)
	return slices.DeleteFunc(all, func(o *codec.Operation) bool {
		if !slices.ContainsFunc(members[o.Key()], func(d departure) bool { return leaving[d.name] }) {
			return false
		}
		w.postpone(o)
		return true
	}), err
}

// forgetOld forgets what nobody has asked for again.
func (b *Backend) forgetOld() {
	then := time.Now().Add(-forgetAfter)
	maps.DeleteFunc(b.postponed, func(_ place, p postponement) bool { return p.last.Before(then) })
	maps.DeleteFunc(b.leaving, func(_ string, d departure) bool { return d.until.Before(then) })
	maps.DeleteFunc(b.failures, func(_ place, c failureCount) bool { return time.Since(c.last) > failuresFor })
}

// noteRemoval records that an interface waits for its deletion.
func (w *write) noteRemoval(o *codec.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backend.postponed[placeOf(o)] = postponement{last: time.Now(), until: time.Now().Add(renewWait)}
}

// renewed deletes the interfaces among changed entries that waited for their deletion when they were wanted again. They are created
// like new ones then.
func (w *write) renewed(ctx context.Context, l int, change, create []*codec.Operation) (changed, created []*codec.Operation, err error) {
	if l != codec.Interfaces {
		return change, create, nil
	}
	for _, o := range change {
		w.mu.Lock()
		p, waited := w.backend.postponed[placeOf(o)]
		w.mu.Unlock()
		if !waited || w.begun.Sub(p.last) > forgetAfter {
			changed = append(changed, o)
			continue
		}
		end, err := w.erase(ctx, o)
		if end == stays {
			w.noteRemoval(o) // it still waits
		}
		if err != nil {
			return nil, nil, err
		}
		if end == stays {
			continue
		}
		w.done(&codec.Operation{Unit: o.Unit, List: o.List}, end == deleted)
		o.There = false
		create = append(create, o)
	}
	return changed, create, nil
}
