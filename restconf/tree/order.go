package tree

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Places are where an entry can be put among its siblings.
var Places = []string{"first", "last", "before", "after"}

// Ordered fails unless t is an entry of a list that its users order.
func (t Target) Ordered() error {
	if !t.Node().OrderedByUser || IsUnit(t.Node()) || t.Last().IsList() {
		return t.Invalid(t.Node().Name + " has no order that users give: leave out where it is to be")
	}
	return nil
}

// CheckPoint fails unless point is an entry of the list of the entry t.
func (t Target) CheckPoint(point Target) error {
	if point.IsRoot() || point.Node() != t.Node() || point.Last().Keys == nil || point.Parent().Path() != t.Parent().Path() {
		return t.Invalid("point: want another entry of the same list")
	}
	return nil
}

func (e Edit) checkPlace() error {
	if e.Where == "" && e.Op != Insert && e.Op != Move {
		return nil
	}
	if err := e.At.Ordered(); err != nil || !NeedsPoint(e.Where) {
		return err
	}
	return e.At.CheckPoint(e.Point)
}

// NeedsPoint reports whether a place is beside another entry.
func NeedsPoint(where string) bool { return where == "before" || where == "after" }

// place replaces the entry t of a list that its users order, at a place in it.
func (a *attempt) place(t Target, entry *yang.Data, where string, point Target) (created bool, err error) {
	err = a.rearrange(t, func(parent *yang.Data) error {
		created = !remove(parent, t.Last())
		return place(parent, entry, where, point)
	})
	return created, err
}

// insert makes the entry t of a list that its users order, at a place in it.
func (a *attempt) insert(t Target, entry *yang.Data, where string, point Target) error {
	return a.rearrange(t, func(parent *yang.Data) error {
		if lookup(parent, t.Last()) != nil {
			return exists(t)
		}
		return place(parent, entry, where, point)
	})
}

// move puts the entry t of such a list at another place in it.
func (a *attempt) move(t Target, where string, point Target) error {
	return a.rearrange(t, func(parent *yang.Data) error {
		entry := lookup(parent, t.Last())
		if entry == nil {
			return missing(t)
		}
		if point != nil && point.Last().Matches(entry) {
			return nil
		}
		remove(parent, t.Last())
		return place(parent, entry, where, point)
	})
}

// rearrange changes the order of what is in t's parent.
func (a *attempt) rearrange(t Target, change func(parent *yang.Data) error) error {
	at, below := t.document()
	doc, err := a.loadOrMake(at)
	if err != nil {
		return err
	}
	parent := ensure(doc, below.Parent())
	if parent == nil {
		return missing(t.Parent())
	}
	if err := change(parent); err != nil {
		return err
	}
	a.save(at, doc)
	return nil
}

// place puts entry among its siblings.
func place(parent, entry *yang.Data, where string, point Target) error {
	var at int
	switch where {
	case "first":
		at = slices.IndexFunc(parent.Children, func(d *yang.Data) bool { return d.Node == entry.Node })
	case "before", "after":
		if at = slices.IndexFunc(parent.Children, point.Last().Matches); at < 0 {
			return point.Invalid("point: there is no such entry")
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
