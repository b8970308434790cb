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

func (c Change) phase(k Kind) phase {
	switch {
	case c.New != nil:
		return upsert
	case kinds[k].detached:
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
	return inOrder(appendSteps(nil, have, want))
}

// appendSteps appends what turns have into want, in no order.
func appendSteps(steps []step, have, want Model) []step {
	kept := 0
	for k, o := range want {
		old, found := have[k]
		if found {
			kept++
		}
		if old != o {
			steps = append(steps, newStep(k, Change{Old: old, New: o}))
		}
	}
	if kept < len(have) {
		for k, o := range have {
			if _, found := want[k]; !found {
				steps = append(steps, newStep(k, Change{Old: o}))
			}
		}
	}
	return steps
}

// Sort puts changes, of one scope or of several, into the order that Diff
// describes. The order is total: it does not depend on the order before.
func Sort(changes []Change) {
	steps := make([]step, len(changes))
	for i, c := range changes {
		steps[i] = newStep(c.Key(), c)
	}
	slices.SortFunc(steps, step.compare)
	for i, s := range steps {
		changes[i] = s.Change
	}
}

// step is a change with what its place depends on, which is dear to compute.
type step struct {
	phase phase
	key   Key
	Change
}

func newStep(k Key, c Change) step { return step{c.phase(k.Kind), k, c} }

func (s step) compare(other step) int {
	if c := cmp.Compare(s.phase, other.phase); c != 0 {
		return c
	}
	if s.phase == upsert {
		return s.key.Compare(other.key)
	}
	return other.key.Compare(s.key)
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
