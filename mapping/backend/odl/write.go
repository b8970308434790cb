package odl

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// write is one Write.
type write struct {
	*session
	backend *Backend
	share   int // how many requests about one list may be under way at once

	mu     sync.Mutex
	mirror *mirror
	taken  int // entries that the controller took
	// believed is set when the controller said of what is to go that it is not there.
	believed bool
	// refused are objects that are not written because the controller, or the codec, does not
	// take them, or something that they refer to.
	refused  map[netvirt.Key]bool
	rejected netvirt.RejectedError
	doubtful []doubt
}

// operation makes one entry what it should be.
type operation struct {
	unit    unit
	list    int
	entry   entry // nil: it is to go
	there   bool  // as far as is known
	changes []netvirt.Change
	refs    []netvirt.Key // of the objects that the entry holds
}

func (o *operation) key() string { return o.unit.name }

// head is the object at the head of the entry.
func (o *operation) head() netvirt.Key {
	if o.unit.kind == netvirt.KindTransit {
		return netvirt.Transit{RouteTarget: strings.TrimPrefix(o.unit.name, transitPrefix)}.Key()
	}
	kind := [listCount]netvirt.Kind{
		netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindVPNInterface, netvirt.KindFloatingIP,
	}[o.list]
	return netvirt.Key{Kind: kind, Name: o.unit.name}
}

// keys are the changes that the operation stands for: those of objects that the entry holds,
// or where there are none, all of the unit.
func (o *operation) keys() []netvirt.Key {
	var held, all []netvirt.Key
	for _, c := range o.changes {
		k := c.Key()
		all = append(all, k)
		if listOf(k.Kind) == o.list {
			held = append(held, k)
		}
	}
	if len(held) > 0 {
		return held
	}
	return all
}

// run makes the changes: deletions that follow each other together, in the order of the
// lists that is the reverse of their dependence, then creations and updates in its order, and
// so on.
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
		if err := w.stretch(ctx, deleting, changes[:n]); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return w.verdict(ctx)
}

// stretch makes changes that are all deletions, or all not: stage after stage, the lists of
// one stage at the same time.
func (w *write) stretch(ctx context.Context, deleting bool, changes []netvirt.Change) error {
	lists := w.operations(changes)
	for i := range stages {
		stage := stages[i]
		if deleting {
			stage = stages[len(stages)-1-i]
		}
		w.share = max(1, w.parallel()/len(stage))
		err := together(ctx, w.parallel(), len(stage), func(ctx context.Context, n int) error {
			return w.list(ctx, stage[n], lists[stage[n]])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// draft is a unit that changes.
type draft struct {
	unit    unit
	have    content
	objects netvirt.Model // as they are
	changes []netvirt.Change
}

// operations turns changes into what is to be done to each list.
func (w *write) operations(changes []netvirt.Change) (lists [listCount][]*operation) {
	drafts := w.drafts(changes)
	for _, c := range changes {
		if vpn, ok := c.New.(netvirt.VPNInstance); ok {
			w.mirror.join(vpn.Name, vpn.Transit)
		}
	}
	for _, d := range drafts {
		w.encode(&lists, d)
	}
	return lists
}

// drafts are the units that changes are about, as they are: those of the objects, and where a
// vpn-instance gets another Transit, those of its interfaces.
func (w *write) drafts(changes []netvirt.Change) []*draft {
	var all []*draft
	byUnit := map[unit]*draft{}
	add := func(u unit, c netvirt.Change) {
		d := byUnit[u]
		if d == nil {
			have := w.mirror.at(u)
			d = &draft{unit: u, have: have, objects: netvirt.Model{}}
			d.objects.Add(w.mirror.decode(u, have, nil)...)
			byUnit[u], all = d, append(all, d)
		}
		d.changes = append(d.changes, c)
	}
	for _, c := range changes {
		add(unitOf(cmp.Or(c.New, c.Old)), c)
		if vpn, ok := c.New.(netvirt.VPNInstance); ok && w.mirror.transits[vpn.Name] != vpn.Transit {
			for _, u := range w.mirror.members(vpn.Name) {
				add(u, c)
			}
		}
	}
	return all
}

// encode adds what is to be done to the entries of a unit.
func (w *write) encode(lists *[listCount][]*operation, d *draft) {
	for _, c := range d.changes {
		if unitOf(cmp.Or(c.New, c.Old)) == d.unit {
			d.objects.Apply([]netvirt.Change{c})
		}
	}
	want, err := w.mirror.encode(d.unit, slices.Collect(maps.Values(d.objects)), d.have)
	if err != nil {
		w.reject(&operation{unit: d.unit, list: listOf(d.unit.kind), changes: d.changes}, err)
		return
	}
	w.mirror.touch(d.unit)
	for l := range listCount {
		if equalAt(d.have, want, l) {
			continue
		}
		o := &operation{unit: d.unit, list: l, entry: want[l], there: d.have[l] != nil, changes: d.changes}
		for k, object := range d.objects {
			if listOf(k.Kind) == l {
				o.refs = append(o.refs, object.Refs()...)
			}
		}
		lists[l] = append(lists[l], o)
	}
}

func equalAt(a, b content, l int) bool {
	if a[l] == nil || b[l] == nil {
		return a[l] == nil && b[l] == nil
	}
	return same(a[l], b[l])
}

// list makes the entries of one list what they should be.
func (w *write) list(ctx context.Context, l int, all []*operation) error {
	var create, change, remove []*operation
	for _, o := range all {
		switch {
		case o.entry == nil:
			remove = append(remove, o)
		case w.stands(o):
			if o.there {
				change = append(change, o)
			} else {
				create = append(create, o)
			}
		}
	}
	if err := w.removeAll(ctx, l, remove); err != nil {
		return err
	}
	if err := w.change(ctx, l, change); err != nil {
		return err
	}
	batches := w.batches(l, create)
	return together(ctx, w.share, len(batches), func(ctx context.Context, i int) error {
		return w.create(ctx, l, batches[i])
	})
}

// stands tells whether all that an entry refers to was taken, as far as it was tried. If not,
// the entry is left out.
func (w *write) stands(o *operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range o.refs {
		if w.refused[ref] {
			w.refused[o.head()] = true
			return false
		}
	}
	return true
}

func (w *write) each(ctx context.Context, all []*operation, do func(context.Context, *operation) error) error {
	return together(ctx, w.share, len(all), func(ctx context.Context, i int) error { return do(ctx, all[i]) })
}

// done notes that an entry is what it should be.
func (w *write) done(o *operation, byUs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if byUs {
		w.taken++
	}
	w.mirror.put(o.unit, o.list, o.entry)
	delete(w.backend.strikes, o.at())
}
