package restconf

import (
	"net/http"
	"slices"

	"github.com/coe-bridge/coe-bridge/yang"
)

// places are where an entry can be put among its siblings.
var places = []string{"first", "last", "before", "after"}

// pointOf checks that at is in a list that its users order, and finds the entry
// that it is to be placed by: point is a path below base, the request's target, or
// from the datastore. It is nil for the places that need none.
func (s *Server) pointOf(base, at target, where, point string) (target, error) {
	if !at.node().OrderedByUser || isUnit(at.node()) || at.last().isList() {
		return nil, badPath(at, at.node().Name+" has no order that users give: leave out where it is to be")
	}
	if where != "before" && where != "after" {
		return nil, nil
	}
	sibling := func(base target) (target, error) {
		t, err := s.below(base, point)
		switch {
		case err != nil:
			return nil, err
		case t.isRoot() || t.node() != at.node() || t.last().keys == nil || t.parent().path() != at.parent().path():
			return nil, badPath(at, "point: want another entry of the same list")
		}
		return t, nil
	}
	t, err := sibling(base)
	if err != nil && !base.isRoot() {
		if absolute, wrong := sibling(nil); wrong == nil {
			return absolute, nil
		}
	}
	return t, err
}

// place puts an entry where a POST's or PUT's query says (RFC 8040 sections 4.8.5 and
// 4.8.6), and tells whether it was not there before.
func (e *edit) place(q *request, t target, entry *yang.Data) (created bool, err error) {
	point, err := e.server.pointOf(nil, t, q.query.insert, q.query.point)
	if err != nil {
		return false, err
	}
	return created, e.rearrange(t, func(parent *yang.Data) error {
		if q.http.Method == http.MethodPost && lookup(parent, t.last()) != nil {
			return exists(t)
		}
		if point != nil && point.last().matches(entry) {
			return badPath(t, "point: an entry can't be placed by itself")
		}
		created = !remove(parent, t.last())
		return place(parent, entry, q.query.insert, point)
	})
}

// insert makes the entry t of a list that its users order, at a place in it.
func (e *edit) insert(t target, entry *yang.Data, where string, point target) error {
	return e.rearrange(t, func(parent *yang.Data) error {
		if lookup(parent, t.last()) != nil {
			return exists(t)
		}
		return place(parent, entry, where, point)
	})
}

// move puts the entry t of such a list at another place in it.
func (e *edit) move(t target, where string, point target) error {
	return e.rearrange(t, func(parent *yang.Data) error {
		entry := lookup(parent, t.last())
		if entry == nil {
			return missing(t)
		}
		if point != nil && point.last().matches(entry) {
			return nil
		}
		remove(parent, t.last())
		return place(parent, entry, where, point)
	})
}

// rearrange changes the order of what is in t's parent.
func (e *edit) rearrange(t target, change func(parent *yang.Data) error) error {
	at, below := t.document()
	doc, err := e.loadOrMake(at)
	if err != nil {
		return err
	}
	parent := ensure(doc, below.parent())
	if parent == nil {
		return missing(t.parent())
	}
	if err := change(parent); err != nil {
		return err
	}
	e.save(at, doc)
	return nil
}

// place puts entry among its siblings.
func place(parent, entry *yang.Data, where string, point target) error {
	var at int
	switch where {
	case "first":
		at = slices.IndexFunc(parent.Children, func(d *yang.Data) bool { return d.Node == entry.Node })
	case "before", "after":
		if at = slices.IndexFunc(parent.Children, point.last().matches); at < 0 {
			return badPath(point, "point: there is no such entry")
		}
		if where == "after" {
			at++
		}
	default:
		at = -1
	}
	if at < 0 { // the last, or the first of all
		insert(parent, entry)
		return nil
	}
	parent.Children = slices.Insert(parent.Children, at, entry)
	return nil
}
