package netvirt

import (
	"cmp"
	"slices"
)

// Change is one step from a model to another. A nil Old creates New, and a nil New deletes
// Old. If both are set, New replaces Old under the same key.
type Change struct {
	Old, New Object
}

// Object returns the new object, or the old one if it is deleted.
func (c Change) Object() Object {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Key returns the key of the object that changes.
func (c Change) Key() Key { return c.Object().Key() }

// Scope returns the scope of the object that changes.
func (c Change) Scope() Scope {
	if c.New != nil {
		return c.New.Scope()
	}
	return c.Old.Scope()
}

// Verb returns "create", "update" or "delete".
func (c Change) Verb() string {
	switch {
	case c.Old == nil:
		return "create"
	case c.New == nil:
		return "delete"
	}
	return "update"
}

// phase is one of the three phases of the safe order.
type phase uint8

const (
	detach phase = iota // delete attached objects: interfaces, addresses, floating IPs
	upsert              // create and update; an object comes after the objects that it refers to
	retire              // delete the rest; an object comes before the objects that it refers to
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

// Diff returns the changes that turn have into want, in a safe order: detach, upsert,
// retire. If have and want have no dangling references, no prefix of the changes leaves
// one. If no address has two interfaces in have and want, none has two in between.
//
// Detach comes first so that an address or a name can go to a new owner. Retire comes last
// so that a moving pod keeps the elan-instance that it still needs.
func Diff(have, want Model) []Change {
	steps := appendSteps(nil, have, want)
	slices.SortFunc(steps, step.compare)
	return changesOf(steps)
}

// appendSteps appends the steps that turn have into want, in no order.
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

// Sort sorts changes of one or several scopes into the order that Diff describes. The
// order is total: it does not depend on the order before.
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

// step is a change with its sort key, which is expensive to compute.
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
