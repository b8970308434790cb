package tree

import (
	"bytes"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// attempt applies edits within one attempt at their transaction. It does not change the
// edits: there may be another attempt.
//
// A document is the content of one unit: an entry, or a top container without those
// of its entries that are units. A write of an entry reads the container's own document,
// which exists as long as the container does. So a delete or replace of the container and
// a write of one of its entries never pass each other unseen.
type attempt struct {
	tree    *Tree
	tx      *datastore.Tx
	written []*document          // each once, as last written
	byPath  map[string]*document // the same
	tops    map[*yang.Node]bool  // the top containers that are written
}

type document struct {
	at   Target
	data *yang.Data
}

func newAttempt(t *Tree, tx *datastore.Tx) *attempt {
	return &attempt{tree: t, tx: tx, byPath: map[string]*document{}, tops: map[*yang.Node]bool{}}
}

// load is the document of at; nil if there is none. A caller that changes a document
// which this attempt has written must save it, or end the attempt with an error.
func (a *attempt) load(at Target) (*yang.Data, error) {
	u := a.tx.Get(at.Node(), at.Last().Keys...)
	if u == nil {
		return nil, nil
	}
	if doc := a.byPath[at.Path()]; doc != nil {
		return doc.data, nil
	}
	return u.Parse()
}

// loadOrMake is the document of at. A missing container is made, a missing entry is not.
func (a *attempt) loadOrMake(at Target) (*yang.Data, error) {
	doc, err := a.load(at)
	switch {
	case err != nil || doc != nil:
		return doc, err
	case at.unit() >= 0:
		return nil, missing(at)
	}
	return &yang.Data{Node: at.Node()}, nil
}

// loadWith is the document of at, if below is in it. A container with nothing but
// external entries exists, and is empty.
func (a *attempt) loadWith(at, below Target) (*yang.Data, error) {
	doc, err := a.load(at)
	if err == nil && doc == nil && a.tree.hasExternal(at.Node()) {
		doc = &yang.Data{Node: at.Node()}
	}
	if err == nil && (doc == nil || Descend(doc, below) == nil) {
		err = missing(slices.Concat(at, below))
	}
	return doc, err
}

// save writes the document of at. d belongs to the attempt from now on.
func (a *attempt) save(at Target, d *yang.Data) {
	var buf bytes.Buffer
	yang.EncodeObject(&buf, d)
	a.tx.Put(at.Node(), at.Last().Keys, buf.Bytes())
	path := at.Path()
	if doc := a.byPath[path]; doc != nil {
		doc.data = d
	} else {
		doc = &document{at, d}
		a.written, a.byPath[path] = append(a.written, doc), doc
	}
	a.tops[at.Top()] = true
}

// saveEntry writes an entry that is a unit, and the missing containers above it.
func (a *attempt) saveEntry(entry *yang.Data) error {
	chain := StepsTo(entry.Node.Parent)
	a.save(append(chain, StepOf(entry)), entry)
	top, below := chain[:1], chain[1:]
	if len(below) == 0 && a.tx.Get(top.Node()) != nil {
		return nil
	}
	own, err := a.load(top)
	switch {
	case err != nil:
		return err
	case own == nil:
		own = &yang.Data{Node: top.Node()}
	case Descend(own, below) != nil:
		return nil
	}
	ensure(own, below)
	a.save(top, own)
	return nil
}

func (a *attempt) saveEntries(entries []*yang.Data) error {
	for _, entry := range entries {
		if err := a.saveEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

// apply makes one edit. created reports that a Replace has made its target.
func (a *attempt) apply(e Edit) (created bool, err error) {
	switch {
	case e.At.IsRoot():
		return false, a.applyWhole(e)
	case e.Op == Create:
		return false, a.create(e.At, e.Data)
	case e.Op == Replace && e.Where != "":
		return a.place(e.At, e.Data[0], e.Where, e.Point)
	case e.Op == Replace:
		return a.put(e.At, e.Data[0])
	case e.Op == Merge:
		return false, a.merge(e.At, e.Data[0])
	case e.Op == Update:
		return false, a.update(e.At, e.Data[0])
	case e.Op == Remove:
		if there, err := a.exists(e.At); err != nil || !there {
			return false, err
		}
		return false, a.delete(e.At)
	case e.Op == Insert:
		return false, a.insert(e.At, e.Data[0], e.Where, e.Point)
	case e.Op == Move:
		return false, a.move(e.At, e.Where, e.Point)
	}
	return false, a.delete(e.At)
}

// applyWhole makes an edit of the whole datastore.
func (a *attempt) applyWhole(e Edit) error {
	switch e.Op {
	case Create:
		return a.createTops(e.Data)
	case Replace:
		return a.putWhole(e.Data)
	}
	for _, top := range e.Data {
		if err := a.merge(StepsTo(top.Node), top); err != nil {
			return err
		}
	}
	return nil
}

// putWhole replaces the datastore: top containers that are not among tops are deleted,
// except those that clients cannot write.
func (a *attempt) putWhole(tops []*yang.Data) error {
	kept := map[*yang.Node]bool{}
	for _, top := range tops {
		kept[top.Node] = true
		if _, err := a.put(StepsTo(top.Node), top); err != nil {
			return err
		}
	}
	for _, module := range a.tree.schema.Modules {
		for _, top := range module.Top {
			if kept[top] || !a.tree.Writable(top) || a.tx.Get(top) == nil {
				continue
			}
			if err := a.delete(StepsTo(top)); err != nil {
				return err
			}
		}
	}
	return nil
}

// exists reports whether t exists.
func (a *attempt) exists(t Target) (bool, error) {
	if t.IsRoot() {
		return true, nil
	}
	at, below := t.document()
	doc, err := a.loadWith(at, below)
	if found, isMissing := AsErrors(err); isMissing && found[0].Tag == "data-missing" {
		return false, nil
	}
	return doc != nil, err
}

// clear removes the entries below the container t that are units.
func (a *attempt) clear(t Target) {
	for _, list := range datastore.UnitLists(t.Node()) {
		a.tx.DeleteAll(list)
	}
}

// put replaces t, and reports whether it made it.
func (a *attempt) put(t Target, data *yang.Data) (created bool, err error) {
	at, below := t.document()
	old := a.tx.Get(at.Node(), at.Last().Keys...)
	if len(below) == 0 && t.unit() >= 0 {
		return old == nil, a.saveEntry(data)
	}
	var entries []*yang.Data
	if t.holdsUnits() {
		a.clear(t)
		data, entries = Split(data)
	}
	if len(below) == 0 {
		a.save(at, data)
		return old == nil && !a.tree.hasExternal(t.Node()), a.saveEntries(entries)
	}
	doc, err := a.loadOrMake(at)
	if err != nil {
		return false, err
	}
	parent := ensure(doc, below.Parent())
	if parent == nil {
		return false, missing(t.Parent())
	}
	if err := keepKey(t, parent, data); err != nil {
		return false, err
	}
	created = !replace(parent, data)
	a.save(at, doc)
	return created, a.saveEntries(entries)
}

// create makes children below t, none of which may exist.
func (a *attempt) create(t Target, children []*yang.Data) error {
	at, below := t.document()
	doc, err := a.loadOrMake(at)
	if err != nil {
		return err
	}
	parent := ensure(doc, below)
	if parent == nil {
		return missing(t)
	}
	before := len(parent.Children)
	entries, err := a.add(t, parent, children)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if a.tx.Get(entry.Node, entry.Key()...) != nil {
			return exists(pathOf(entry))
		}
	}
	if len(parent.Children) > before { // else concurrent creates would wait for each other
		a.save(at, doc)
	}
	return a.saveEntries(entries)
}

func (a *attempt) createTops(tops []*yang.Data) error {
	for _, top := range tops {
		at := StepsTo(top.Node)
		created, err := a.put(at, top)
		if err != nil {
			return err
		}
		if !created {
			return exists(at)
		}
	}
	return nil
}

// add makes children in parent, the instance of t. It returns the entries among and below
// them that are units.
func (a *attempt) add(t Target, parent *yang.Data, children []*yang.Data) (entries []*yang.Data, err error) {
	there := make(map[string]bool, len(parent.Children))
	for _, sibling := range parent.Children {
		there[sibling.Identity()] = true
	}
	var added []*yang.Data
	for _, child := range children {
		if t.holdsUnits() {
			if IsUnit(child.Node) {
				entries = append(entries, child)
				continue
			}
			var below []*yang.Data
			child, below = Split(child)
			entries = append(entries, below...)
		}
		// Entries of a list without keys have no identity.
		if s := StepOf(child); !s.IsList() && there[child.Identity()] {
			return nil, exists(t.Child(s))
		}
		added = append(added, child)
	}
	insertAll(parent, added)
	return entries, nil
}

// merge merges data into t, or makes t.
func (a *attempt) merge(t Target, data *yang.Data) error {
	there, err := a.exists(t)
	if err != nil {
		return err
	}
	if there {
		return a.update(t, data)
	}
	_, err = a.put(t, data)
	return err
}

// update merges data into t, which must exist.
func (a *attempt) update(t Target, data *yang.Data) error {
	at, below := t.document()
	doc, err := a.loadWith(at, below)
	if err != nil {
		return err
	}
	var entries []*yang.Data
	if t.holdsUnits() {
		data, entries = Split(data)
	}
	if len(below) == 0 {
		doc = yang.Merge(doc, data)
	} else {
		parent := Descend(doc, below.Parent())
		if err := keepKey(t, parent, data); err != nil {
			return err
		}
		replace(parent, yang.Merge(lookup(parent, below.Last()), data))
	}
	a.save(at, doc)
	for _, entry := range entries {
		old, err := a.load(pathOf(entry))
		if err != nil {
			return err
		}
		if old != nil {
			entry = yang.Merge(old, entry)
		}
		if err := a.saveEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

// delete removes t, which must exist.
func (a *attempt) delete(t Target) error {
	at, below := t.document()
	if len(below) == 0 && a.tx.Get(at.Node(), at.Last().Keys...) == nil {
		if external, says := a.tree.anyExternal(at.Node()); says != "" {
			return inUse(external, says) // clients wrote nothing of the container
		}
	}
	doc, err := a.loadWith(at, below)
	if err != nil {
		return err
	}
	if t.Node().IsKey() {
		return keyIsFixed(t)
	}
	if t.holdsUnits() {
		a.clear(t)
	}
	if len(below) == 0 {
		a.tx.Delete(at.Node(), at.Last().Keys)
		return nil
	}
	remove(Descend(doc, below.Parent()), below.Last())
	a.save(at, doc)
	return nil
}

// keepKey refuses to change t if it is a key.
func keepKey(t Target, parent, data *yang.Data) error {
	if t.Node().IsKey() && lookup(parent, t.Last()).Value != data.Value {
		return keyIsFixed(t)
	}
	return nil
}
