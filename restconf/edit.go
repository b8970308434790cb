package restconf

import (
	"bytes"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// edit is one request's work on the tree, within one attempt at its transaction.
// It leaves the request's data as they are: there may be another attempt.
//
// A document is what one unit holds: an entry, or a top container without those
// of its entries that are units. Whoever writes an entry reads the container's
// own document, which is there as long as the container is; so a DELETE or PUT of
// the container and a write to one of its entries never pass each other unseen.
type edit struct {
	server  *Server
	tx      *datastore.Tx
	written []*document          // each once, as it was written last
	byPath  map[string]*document // the same
	tops    map[*yang.Node]bool  // in which something is written
}

type document struct {
	at   target
	data *yang.Data
}

func newEdit(s *Server, tx *datastore.Tx) *edit {
	return &edit{server: s, tx: tx, byPath: map[string]*document{}, tops: map[*yang.Node]bool{}}
}

// document is the path of the document that t lies in, and what is left of t
// below it.
func (t target) document() (at, below target) {
	i := max(t.unit(), 0)
	return t[:i+1], t[i+1:]
}

// holdsUnits tells whether t is a container, so that entries below it may be
// units of their own.
func (t target) holdsUnits() bool { return t.unit() < 0 && t.node().Kind == yang.Container }

// load is the document of at, nil where there is none. Who changes one that this edit
// has written saves it, or fails and so ends the edit.
func (e *edit) load(at target) (*yang.Data, error) {
	u := e.tx.Get(at.node(), at.last().keys...)
	if u == nil {
		return nil, nil
	}
	if doc := e.byPath[at.path()]; doc != nil {
		return doc.data, nil
	}
	return u.Parse()
}

// loadOrMake is the document of at. A container is made where it is missing, an
// entry is not.
func (e *edit) loadOrMake(at target) (*yang.Data, error) {
	doc, err := e.load(at)
	switch {
	case err != nil || doc != nil:
		return doc, err
	case at.unit() >= 0:
		return nil, missing(at)
	}
	return &yang.Data{Node: at.node()}, nil
}

// loadWith is the document of at, if below is in it. A container is there, empty,
// where all that is in it is foreign.
func (e *edit) loadWith(at, below target) (*yang.Data, error) {
	doc, err := e.load(at)
	if err == nil && doc == nil && e.server.hasForeign(at.node()) {
		doc = &yang.Data{Node: at.node()}
	}
	if err == nil && (doc == nil || descend(doc, below) == nil) {
		err = missing(append(slices.Clone(at), below...))
	}
	return doc, err
}

// save writes the document of at, which is the edit's own from now on.
func (e *edit) save(at target, d *yang.Data) {
	var buf bytes.Buffer
	yang.EncodeObject(&buf, d)
	e.tx.Put(at.node(), at.last().keys, buf.Bytes())
	path := at.path()
	if doc := e.byPath[path]; doc != nil {
		doc.data = d
	} else {
		doc = &document{at, d}
		e.written, e.byPath[path] = append(e.written, doc), doc
	}
	e.tops[at.top()] = true
}

// saveEntry writes an entry that is a unit, and the containers above it where
// they are missing.
func (e *edit) saveEntry(entry *yang.Data) error {
	chain := stepsTo(entry.Node.Parent)
	e.save(append(chain, stepOf(entry)), entry)
	top, below := chain[:1], chain[1:]
	if len(below) == 0 && e.tx.Get(top.node()) != nil {
		return nil
	}
	own, err := e.load(top)
	switch {
	case err != nil:
		return err
	case own == nil:
		own = &yang.Data{Node: top.node()}
	case descend(own, below) != nil:
		return nil
	}
	ensure(own, below)
	e.save(top, own)
	return nil
}

func (e *edit) saveEntries(entries []*yang.Data) error {
	for _, entry := range entries {
		if err := e.saveEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the entries below the container t that are units.
func (e *edit) clear(t target) {
	for _, list := range datastore.UnitLists(t.node()) {
		e.tx.DeleteAll(list)
	}
}

// put makes t what data say, and tells whether it was not there before.
func (e *edit) put(t target, data *yang.Data) (created bool, err error) {
	at, below := t.document()
	old := e.tx.Get(at.node(), at.last().keys...)
	if len(below) == 0 && t.unit() >= 0 {
		return old == nil, e.saveEntry(data)
	}
	var entries []*yang.Data
	if t.holdsUnits() {
		e.clear(t)
		data, entries = split(data)
		if entries, err = e.server.withoutForeign(entries); err != nil {
			return false, err
		}
	}
	if len(below) == 0 {
		e.save(at, data)
		return old == nil && !e.server.hasForeign(t.node()), e.saveEntries(entries)
	}
	doc, err := e.loadOrMake(at)
	if err != nil {
		return false, err
	}
	parent := ensure(doc, below.parent())
	if parent == nil {
		return false, missing(t.parent())
	}
	if err := keepKey(t, parent, data); err != nil {
		return false, err
	}
	created = !replace(parent, data)
	e.save(at, doc)
	return created, e.saveEntries(entries)
}

// post makes children below t, none of which may be there.
func (e *edit) post(t target, children []*yang.Data) error {
	if t.isRoot() {
		return e.postTops(children)
	}
	at, below := t.document()
	doc, err := e.loadOrMake(at)
	if err != nil {
		return err
	}
	parent := ensure(doc, below)
	if parent == nil {
		return missing(t)
	}
	before := len(parent.Children)
	entries, err := e.add(t, parent, children)
	if err != nil {
		return err
	}
	if err := e.server.refuseForeignIn(entries); err != nil {
		return err
	}
	for _, entry := range entries {
		if e.tx.Get(entry.Node, entry.Key()...) != nil {
			return exists(pathOf(entry))
		}
	}
	if len(parent.Children) > before { // or else those who POST would wait for each other
		e.save(at, doc)
	}
	return e.saveEntries(entries)
}

func (e *edit) postTops(tops []*yang.Data) error {
	for _, top := range tops {
		at := target{{node: top.Node}}
		created, err := e.put(at, top)
		if err != nil {
			return err
		}
		if !created {
			return exists(at)
		}
	}
	return nil
}

// add makes children in parent, the instance of t, and returns those entries
// among and below them that are units.
func (e *edit) add(t target, parent *yang.Data, children []*yang.Data) (entries []*yang.Data, err error) {
	there := make(map[string]bool, len(parent.Children))
	for _, sibling := range parent.Children {
		there[sibling.Identity()] = true
	}
	var added []*yang.Data
	for _, child := range children {
		if t.holdsUnits() {
			if isUnit(child.Node) {
				entries = append(entries, child)
				continue
			}
			var below []*yang.Data
			child, below = split(child)
			entries = append(entries, below...)
		}
		// Without keys the entries of a list are not told apart.
		if s := stepOf(child); !s.isList() && there[child.Identity()] {
			return nil, exists(append(slices.Clone(t), s))
		}
		added = append(added, child)
	}
	insertAll(parent, added)
	return entries, nil
}

// patch merges data into t, which has to be there.
func (e *edit) patch(t target, data *yang.Data) error {
	at, below := t.document()
	doc, err := e.loadWith(at, below)
	if err != nil {
		return err
	}
	var entries []*yang.Data
	if t.holdsUnits() {
		data, entries = split(data)
		if err := e.server.refuseForeignIn(entries); err != nil {
			return err
		}
	}
	if len(below) == 0 {
		doc = yang.Merge(doc, data)
	} else {
		parent := descend(doc, below.parent())
		if err := keepKey(t, parent, data); err != nil {
			return err
		}
		replace(parent, yang.Merge(lookup(parent, below.last()), data))
	}
	e.save(at, doc)
	for _, entry := range entries {
		old, err := e.load(pathOf(entry))
		if err != nil {
			return err
		}
		if old != nil {
			entry = yang.Merge(old, entry)
		}
		if err := e.saveEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

// delete removes t, which has to be there.
func (e *edit) delete(t target) error {
	at, below := t.document()
	if len(below) == 0 && e.tx.Get(at.node(), at.last().keys...) == nil {
		if foreign, says := e.server.anyForeign(at.node()); says != "" {
			return inUse(foreign, says)
		}
	}
	doc, err := e.loadWith(at, below)
	if err != nil {
		return err
	}
	if isKey(t.node()) {
		return keyIsFixed(t)
	}
	if t.holdsUnits() {
		e.clear(t)
	}
	if len(below) == 0 {
		e.tx.Delete(at.node(), at.last().keys)
		return nil
	}
	remove(descend(doc, below.parent()), below.last())
	e.save(at, doc)
	return nil
}

// keepKey refuses to change t where it is a key.
func keepKey(t target, parent, data *yang.Data) error {
	if isKey(t.node()) && lookup(parent, t.last()).Value != data.Value {
		return keyIsFixed(t)
	}
	return nil
}

func keyIsFixed(t target) error {
	return &yang.Error{
		Type: "protocol", Tag: "invalid-value", Path: t.path(),
		Message: t.node().Name + " is a key: to change it, delete the entry and make another",
	}
}
