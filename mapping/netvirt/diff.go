package netvirt

import (
	"cmp"
	"slices"
)

// Change is one step from a model to another: a nil Old creates New, a nil New
// deletes Old, both set replace Old by New under the same key.
type Change struct {
	Old, New Object
}

// Key is the key of the object that changes.
func (c Change) Key() Key {
	if c.New != nil {
		return c.New.Key()
	}
	return c.Old.Key()
}

// Scope is the scope of the object that changes.
func (c Change) Scope() Scope {
	if c.New != nil {
		return c.New.Scope()
	}
	return c.Old.Scope()
}

// Verb is "create", "update" or "delete".
func (c Change) Verb() string {
	switch {
	case c.Old == nil:
		return "create"
	case c.New == nil:
		return "delete"
	}
	return "update"
}

// phase divides changes into the three that follow each other in a safe order.
type phase uint8

const (
	detach phase = iota // delete what is attached: interfaces, addresses, floating IPs
	upsert              // create and update, what is referred to first
	retire              // delete the rest, what refers first
)

func (c Change) phase() phase {
	switch {
	case c.New != nil:
		return upsert
	case kinds[c.Old.Key().Kind].detached:
		return detach
	}
	return retire
}

// Diff returns the changes that turn have into want, in an order that is safe:
// detach, upsert, retire. Applied to have, every prefix of the result leaves a
// model without dangling references, if have and want have none, and no
// address is held by two interfaces on the way unless have or want says so.
//
// Detaching first is what lets an address or a name go to a new owner;
// retiring last keeps an elan-instance that a moving pod still needs.
func Diff(have, want Model) []Change {
	var changes []Change
	kept := 0
	for k, o := range want {
		old, found := have[k]
		if found {
			kept++
		}
		if old != o {
			changes = append(changes, Change{Old: old, New: o})
		}
	}
	if kept < len(have) {
		for k, o := range have {
			if _, found := want[k]; !found {
				changes = append(changes, Change{Old: o})
			}
		}
	}
	Sort(changes)
	return changes
}

// Sort puts changes, of one scope or of several, into the order that Diff
// describes. The order is total: it does not depend on the order before.
func Sort(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int {
		if c := cmp.Compare(a.phase(), b.phase()); c != 0 {
			return c
		}
		if a.phase() == upsert {
			return a.Key().Compare(b.Key())
		}
		return b.Key().Compare(a.Key())
	})
}

// Apply makes the changes to the model.
func (m Model) Apply(changes []Change) {
	for _, c := range changes {
		if c.New == nil {
			delete(m, c.Key())
		} else {
			m[c.Key()] = c.New
		}
	}
}
