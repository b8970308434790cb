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

// write is one call of Write.
type write struct {
	*session
	backend *Backend
	share   int // maximum number of concurrent requests for one list

	mu       sync.Mutex
	mirror   *mirror
	accepted int // number of entries that the controller has accepted
	// absent is set when the controller has answered that an entry to be deleted does not
	// exist.
	absent bool
	// refused holds the objects that are not written because the controller or the codec
	// refuses them, or an object that they refer to.
	refused  map[netvirt.Key]bool
	rejected netvirt.RejectedError
	failed   []failure
	// late holds the postponed operations; lateUnits their units, and lateHeads the objects of those that are not deletions.
	late      []*operation
	lateUnits map[unit]bool
	lateHeads map[netvirt.Key]bool
}

// operation writes or deletes one entry.
type operation struct {
	unit    unit
	list    int
	entry   entry // nil deletes it
	there   bool  // whether the mirror has it
	changes []netvirt.Change
	refs    []netvirt.Key // of the objects in the entry
	of      netvirt.Key   // of an access list: its ACL or RemoteGroup
}

func (o *operation) key() string { return o.unit.name }

// head returns the key of the entry's main object.
func (o *operation) head() netvirt.Key {
	if o.unit.kind == netvirt.KindTransit {
		return netvirt.Transit{RouteTarget: strings.TrimPrefix(o.unit.name, transitPrefix)}.Key()
	}
	if o.list == accessLists {
		return o.of
	}
	if of, is := nodeKey(o.unit); is {
		return of
	}
	kind := [listCount]netvirt.Kind{
		netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindACL, netvirt.KindInterface, netvirt.KindELANInterface, netvirt.KindVPNInterface, netvirt.KindFloatingIP,
	}[o.list]
	return netvirt.Key{Kind: kind, Name: o.unit.name}
}

// keys returns the keys of the changes that the operation makes: of the objects in the
// entry or, if there are none, all changes of the unit.
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
			return err
		}
		changes = changes[n:]
	}
	return w.result(ctx)
}

// runOf makes changes that are all deletions, or all creations and updates: stage by stage,
// the lists of one stage concurrently.
func (w *write) runOf(ctx context.Context, deleting bool, changes []netvirt.Change) error {
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

// draft is a unit with its changes.
type draft struct {
	unit    unit
	have    content
	objects netvirt.Model // before the changes
	changes []netvirt.Change
}

// operations returns the operations of changes, by list.
func (w *write) operations(changes []netvirt.Change) (lists [listCount][]*operation) {
	drafts := w.drafts(changes)
	for _, c := range changes {
		if vpn, ok := c.New.(netvirt.VPNInstance); ok {
			w.mirror.join(vpn.Name, vpn.Transit)
		}
		w.mirror.learn(c)
	}
	for _, d := range drafts {
		w.encode(&lists, d)
	}
	lists[accessLists] = append(lists[accessLists], w.openLists(lists[interfaces])...)
	return lists
}

// openLists returns the operations that write the lists that permit everything, as far as
// interfaces name them. They are never deleted.
func (w *write) openLists(of []*operation) (all []*operation) {
	for _, d := range []netvirt.Direction{netvirt.Ingress, netvirt.Egress} {
		u, want := unit{netvirt.KindACL, openID(d)}, openList(d)
		names := func(o *operation) bool {
			e, ok := o.entry.(*ietfInterface)
			return ok && slices.Contains(e.Groups, want.Name)
		}
		if have := w.mirror.at(u)[accessLists]; (have == nil || !same(have, want)) && slices.ContainsFunc(of, names) {
			all = append(all, &operation{unit: u, list: accessLists, entry: want, there: have != nil})
		}
	}
	return all
}

// drafts returns the units of changes: the units of the objects, if a vpn-instance gets another
// Transit, the units of its interfaces, and the units that use an ACL or a RemoteGroup.
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
		if network, ok := c.New.(netvirt.NodeNetwork); ok && w.mirror.networks[network.Prefix] != network {
			for _, u := range w.mirror.managementPorts() {
				add(u, c)
			}
		}
		for u := range w.mirror.users[c.Key()] {
			add(u, c)
		}
	}
	return all
}

// encode adds the operations on the entries of a unit.
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
			if listOf(k.Kind) == l || ofNode(k.Kind) {
				o.refs = append(o.refs, object.Refs()...)
			}
			if ofNode(k.Kind) && l != interfaces {
				o.refs = append(o.refs, k)
			}
		}
		if l == accessLists {
			o.of = listObject(cmp.Or(want[l], d.have[l])).Key()
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

// list makes the operations on one list.
func (w *write) list(ctx context.Context, l int, all []*operation) error {
	var create, change, remove []*operation
	for _, o := range all {
		switch {
		case o.entry == nil:
			remove = append(remove, o)
		case w.needsLate(o):
			w.postpone(o)
		case w.refsWritten(o):
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
	change, create, err := w.prepared(ctx, l, change, create)
	if err != nil {
		return err
	}
	if err := w.change(ctx, l, change); err != nil {
		return err
	}
	batches := w.batches(l, create)
	err = together(ctx, w.share, len(batches), func(ctx context.Context, i int) error {
		return w.create(ctx, l, batches[i])
	})
	if err != nil || l != accessLists {
		return err
	}
	return w.awaitKnown(ctx, create)
}

// prepared postpones the changes and creations that have to wait, and returns the others.
func (w *write) prepared(ctx context.Context, l int, change, create []*operation) (changed, created []*operation, err error) {
	if l == elanInstances {
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
func (w *write) refsWritten(o *operation) bool {
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

// done records that an entry is as wanted; byUs if the controller has accepted our request.
func (w *write) done(o *operation, byUs bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if byUs {
		w.accepted++
	}
	w.mirror.put(o.unit, o.list, o.entry)
	delete(w.backend.failures, o.at())
	delete(w.backend.postponed, o.at())
}
