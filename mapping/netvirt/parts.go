package netvirt

import (
	"maps"
	"slices"
	"strings"
)

// Parts is a model that is divided into parts: the objects that attach an interface under
// the interface's name, and all other objects under "". A part is never empty and never
// changed, only replaced. So successive models share their equal parts, and the cost of a
// comparison depends only on the parts that differ.
type Parts map[string]*Part

// Part is the objects of one part.
type Part struct{ Model }

// NewPart returns a part with the given objects, which must belong to the same part.
func NewPart(objects ...Object) *Part {
	m := make(Model, len(objects))
	m.Add(objects...)
	return &Part{m}
}

// attaching is the set of the kinds that attach interfaces.
const attaching = 1<<KindInterface | 1<<KindELANInterface | 1<<KindVPNInterface | 1<<KindMACEntry | 1<<KindAdjacency |
	1<<KindInterfaceACL

// part returns the name of the part that the object of a key belongs to.
func (k Key) part() string {
	switch k.Kind {
	case KindInterface, KindELANInterface, KindVPNInterface, KindInterfaceACL:
		return k.Name
	case KindMACEntry, KindAdjacency: // "interface address"
		return k.Name[:max(0, strings.LastIndexByte(k.Name, ' '))]
	default:
		return ""
	}
}

// Parts divides the model into parts.
func (m Model) Parts() Parts {
	parts := Parts{}
	for k, o := range m {
		parts.add(k, o)
	}
	return parts
}

// ByScope divides the model by scope, and each scope into parts.
func (m Model) ByScope() map[Scope]Parts {
	out := map[Scope]Parts{}
	for k, o := range m {
		scope := o.Scope()
		if out[scope] == nil {
			out[scope] = Parts{}
		}
		out[scope].add(k, o)
	}
	return out
}

// add adds an object. The parts must not be shared yet.
func (p Parts) add(k Key, o Object) {
	name := k.part()
	if p[name] == nil {
		p[name] = &Part{Model{}}
	}
	p[name].Model[k] = o
}

// Model returns the model as a whole.
func (p Parts) Model() Model {
	whole := make(Model, p.Len())
	for _, part := range p {
		maps.Copy(whole, part.Model)
	}
	return whole
}

// Get returns the object of a key, or nil if there is none.
func (p Parts) Get(k Key) Object {
	if part := p[k.part()]; part != nil {
		return part.Model[k]
	}
	return nil
}

// Len returns the number of objects.
func (p Parts) Len() int {
	n := 0
	for _, part := range p {
		n += len(part.Model)
	}
	return n
}

// Select returns the objects whose kind is in the set. A part with no other objects stays
// the same pointer.
func (p Parts) Select(set KindSet) Parts {
	if set&attaching == attaching {
		return p.selectRest(set)
	}
	out := make(Parts, len(p))
	for name, part := range p {
		if left := part.selected(set); len(left.Model) > 0 {
			out[name] = left
		}
	}
	return out
}

// selectRest is Select for a set with every kind that attaches interfaces: only the part
// "" can have other kinds.
func (p Parts) selectRest(set KindSet) Parts {
	rest := p[""]
	left := rest.selected(set)
	if left == rest {
		return p
	}
	out := maps.Clone(p)
	if out[""] = left; len(left.Model) == 0 {
		delete(out, "")
	}
	return out
}

func (p *Part) selected(set KindSet) *Part {
	if p == nil {
		return nil
	}
	for k := range p.Model {
		if !set.Has(k.Kind) {
			return &Part{p.Select(set)}
		}
	}
	return p
}

// Apply returns new parts with the changes made. It does not change p.
func (p Parts) Apply(changes []Change) Parts {
	out, changed := maps.Clone(p), Parts{}
	if out == nil {
		out = Parts{}
	}
	for _, c := range changes {
		name := c.Key().part()
		if changed[name] == nil {
			changed[name] = &Part{Model{}}
			if old := p[name]; old != nil {
				changed[name].Model = maps.Clone(old.Model)
			}
		}
		changed[name].Apply([]Change{c})
	}
	for name, part := range changed {
		if out[name] = part; len(part.Model) == 0 {
			delete(out, name)
		}
	}
	return out
}

// DiffParts is Diff for models that are divided into parts.
func DiffParts(have, want Parts) []Change {
	var steps []step
	kept := 0
	for name, part := range want {
		old := have[name]
		if old != nil {
			kept++
		}
		if old != part {
			steps = appendSteps(steps, old.model(), part.Model)
		}
	}
	if kept < len(have) {
		for name, part := range have {
			if want[name] == nil {
				steps = appendSteps(steps, part.Model, nil)
			}
		}
	}
	return inOrder(steps)
}

// model returns the objects of a part, which may be nil.
func (p *Part) model() Model {
	if p == nil {
		return nil
	}
	return p.Model
}

// inOrder sorts steps and returns their changes.
func inOrder(steps []step) []Change {
	slices.SortFunc(steps, step.compare)
	changes := make([]Change, len(steps))
	for i, s := range steps {
		changes[i] = s.Change
	}
	return changes
}
