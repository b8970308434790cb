package tree

import (
	"context"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Part is which data of a resource a read is about.
type Part uint8

// The parts. The first three are the values of content in RFC 8040 section 4.8.1.
//
//	               PartConfig            PartState      PartAll  PartOperational
//	writable tree  the datastore,        state nodes    both     the datastore, external
//	               external and          of the State            and computed entries and
//	               computed entries                              the State
//	read-only      its Source's config   state nodes    both     its Source's state
const (
	PartAll Part = iota
	PartConfig
	PartState
	PartOperational
)

func (p Part) hasState() bool { return p != PartConfig }

// hasVersion reports whether the part is one that can be written.
func (p Part) hasVersion() bool { return p == PartAll || p == PartConfig }

// Question is what a read asks for.
type Question struct {
	At   Target
	Part Part
	// Depth is the number of levels; 0 for all. Keys shows the keys of entries below the
	// last level.
	Depth    int
	Keys     bool
	Fields   *Selection // nil: all
	Defaults Defaults
	// UnsetLeaf answers with the default of the leaf At if it is not set (RFC 8040
	// section 3.5.4).
	UnsetLeaf bool
	Base      string // for Asked
}

// whole reports whether the answer is just what the tree holds.
func (q Question) whole() bool {
	return q.Depth == 0 && q.Fields == nil && (q.Defaults == DefaultsAsStored)
}

// HasMore reports whether the answer has data that its Version does not cover: state,
// computed entries, or the read-only trees of the whole datastore.
func (t *Tree) HasMore(q Question) bool {
	return q.At.IsRoot() || t.state[q.At.Top()] != nil && q.Part.hasState() || t.computedIn(q.At.Top()) != nil
}

// Stored are the units that are the whole answer, as they are stored: all units of a top
// container with its own first, or that of one entry. ok is false if the answer is more,
// or less, than units.
func (t *Tree) Stored(q Question) (units []*datastore.Unit, ok bool) {
	if q.At.IsRoot() || !q.whole() || q.Part == PartState {
		return nil, false
	}
	top, node := q.At.Top(), q.At.Node()
	if !t.Writable(top) || t.HasMore(q) {
		return nil, false
	}
	switch {
	case node == top && flat(top):
		return t.units(top), true
	case IsUnit(node) && q.At.Last().Keys != nil:
		if u := t.unit(node, q.At.Last().Keys); u != nil {
			units = append(units, u)
		}
		return units, true
	}
	return nil, false
}

// flat reports whether all units of top are in lists right below it.
func flat(top *yang.Node) bool {
	return !slices.ContainsFunc(datastore.UnitLists(top), func(list *yang.Node) bool { return list.Parent != top })
}

// Read returns the instances that the question is about: all entries if At is a list, all
// top containers if it is the datastore.
func (t *Tree) Read(ctx context.Context, q Question) ([]*yang.Data, error) {
	found, err := t.find(ctx, q)
	if err != nil {
		return nil, err
	}
	return q.Trim(found), nil
}

func (t *Tree) find(ctx context.Context, q Question) ([]*yang.Data, error) {
	if !q.At.IsRoot() {
		top, err := t.load(ctx, q, q.At.Top(), t.unitsOf(q))
		if top == nil || err != nil {
			return nil, err
		}
		if found := descendAll(top, q.At[1:]); len(found) > 0 {
			return found, nil
		}
		return q.unsetLeaf(top), nil
	}
	stored := t.store.All() // at one revision: a transaction may be in several containers
	var all []*yang.Data
	for _, module := range t.schema.Modules {
		for _, node := range module.Top {
			top, err := t.load(ctx, q, node, t.withExternal(node, stored[node]))
			if err != nil {
				return nil, err
			}
			if top != nil {
				all = append(all, top)
			}
		}
	}
	return all, nil
}

// unitsOf are the units that At can be in; a read-only tree has none.
func (t *Tree) unitsOf(q Question) []*datastore.Unit {
	if _, fixed := t.readOnly[q.At.Top()]; fixed {
		return nil
	}
	if i := q.At.unit(); i >= 0 {
		if u := t.unit(q.At[i].Node, q.At[i].Keys); u != nil {
			return []*datastore.Unit{u}
		}
		return nil
	}
	return t.units(q.At.Top())
}

// load is the part of a top container that is asked for, or nil. units are the units of it
// that clients see.
func (t *Tree) load(ctx context.Context, q Question, top *yang.Node, units []*datastore.Unit) (*yang.Data, error) {
	source := t.state[top]
	var config *yang.Data
	var err error
	if fixed, ok := t.readOnly[top]; ok {
		source = fixed.Source
		if top.Config && (q.Part == PartConfig || q.Part == PartAll) {
			config, err = source.Get(ctx, q.asked(ContentConfig, top))
		}
	} else {
		config, err = t.withComputed(ctx, q, top, units)
	}
	if err != nil || source == nil || !q.Part.hasState() {
		return config, err
	}
	state, err := source.Get(ctx, q.asked(ContentOperational, top))
	if state != nil && q.Part != PartOperational {
		state = trimState(state)
	}
	switch {
	case err != nil || state == nil:
		return config, err
	case config == nil:
		return state, nil
	}
	return yang.Merge(config, state), nil
}

// asked is what the question wants of a source.
func (q Question) asked(content Content, top *yang.Node) Asked {
	a := Asked{Content: content, Top: top, Base: q.Base}
	if len(q.At) > 1 && q.At[1].Node.Kind == yang.List {
		a.Entry = q.At[1].Keys
		if len(q.At) > 2 && q.At[2].Node.Kind == yang.List {
			a.Within = q.At[2].Keys
		}
	}
	return a
}
