package netvirt

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Parts is a model that is divided into parts, sorted by name. A part has the objects that attach an interface, an elan-instance and
// what belongs to it alone, a node, or a RemoteGroup; the part "" has all other objects. A part is never empty and never changed, only
// replaced, and Parts are never changed. So successive models share their equal parts, and the cost of a comparison depends
// almost only on the parts that differ.
type Parts []*Part

// Part is the objects of one part.
type Part struct {
	Name string // of the interface, ELANPart, NodePart, GroupPart, or empty
	Model
	kinds KindSet
}

// noInterface begins the names of parts that attach no interface. No name of an interface has it (RFC 7950, section 9.4).
const noInterface = "\x00"

// firstAttaching is a name that comes before the names of all parts that attach interfaces, and after all others.
const firstAttaching = "\x01"

// ELANPart returns the name of the part of an elan-instance.
func ELANPart(elan string) string { return noInterface + elan }

// NodePart returns the name of the part of a node.
func NodePart(node netip.Addr) string { return noInterface + node.String() }

// GroupPart returns the name of the part of a RemoteGroup that is not that of a node.
func GroupPart(name string) string { return noInterface + name }

// Attaches reports whether the part has the objects that attach an interface.
func (p *Part) Attaches() bool { return p.Name >= firstAttaching }

// NewPart returns a part with the given objects, at least one, which must belong to the same part.
func NewPart(objects ...Object) *Part {
	m := make(Model, len(objects))
	m.Add(objects...)
	return newPart(objects[0].Key().part(), m)
}

// RestPart returns the part "" with the objects of a model; nil if there are none.
func RestPart(m Model) *Part {
	if len(m) == 0 {
		return nil
	}
	return newPart("", m)
}

func newPart(name string, m Model) *Part {
	p := &Part{Name: name, Model: m}
	for k := range m {
		p.kinds |= 1 << k.Kind
	}
	return p
}

// attaching is the set of the kinds of the parts that attach interfaces.
const attaching = 1<<KindInterface | 1<<KindELANInterface | 1<<KindVPNInterface | 1<<KindMACEntry | 1<<KindAdjacency |
	1<<KindInterfaceACL

// part returns the name of the part that the object of a key belongs to.
func (k Key) part() string {
	switch k.Kind {
	case KindInterface, KindELANInterface, KindVPNInterface, KindInterfaceACL:
		return k.Name
	case KindELANInstance, KindNodePort, KindNode, KindManagementPort:
		return noInterface + k.Name
	case KindSubnet: // "elan-instance prefix"
		return noInterface + k.Name[:max(0, strings.LastIndexByte(k.Name, ' '))]
	case KindMACEntry, KindAdjacency: // "interface address"
		return k.Name[:max(0, strings.LastIndexByte(k.Name, ' '))]
	case KindACL, KindACE: // an ACE: "acl name"
		acl, _, _ := strings.Cut(k.Name, " ")
		return partOfNode(acl, ofNode)
	case KindRemoteGroup:
		if node := partOfNode(k.Name, groupOfNode); node != "" {
			return node
		}
		return GroupPart(k.Name)
	default:
		return ""
	}
}

// partOfNode returns the name of the part of a node, whose address follows a prefix in a name; empty if none does.
func partOfNode(name, prefix string) string {
	text, found := strings.CutPrefix(name, prefix)
	if _, err := netip.ParseAddr(text); !found || err != nil {
		return ""
	}
	return noInterface + text
}

// Parts divides the model into parts.
func (m Model) Parts() Parts {
	byName := map[string]Model{}
	for k, o := range m {
		modelOf(byName, k.part())[k] = o
	}
	return newParts(byName)
}

// ByScope divides the model by scope, and each scope into parts.
func (m Model) ByScope() map[Scope]Parts {
	d := NewDivision()
	for k, o := range m {
		d.add(k, o)
	}
	return d.ByScope()
}

// Division divides objects by scope, and each scope into parts. That is cheap if objects of one part are added one after another.
type Division struct {
	models map[Scope]map[string]Model // by name of the part
	last   struct {
		scope Scope
		name  string
		Model
	}
}

// NewDivision returns a Division of no objects.
func NewDivision() *Division { return &Division{models: map[Scope]map[string]Model{}} }

// Add adds objects, and replaces objects with the same key.
func (d *Division) Add(objects ...Object) {
	for _, o := range objects {
		d.add(o.Key(), o)
	}
}

func (d *Division) add(k Key, o Object) {
	scope, name := o.Scope(), k.part()
	if d.last.Model == nil || d.last.name != name || d.last.scope != scope {
		models := d.models[scope]
		if models == nil {
			models = map[string]Model{}
			d.models[scope] = models
		}
		d.last.scope, d.last.name, d.last.Model = scope, name, modelOf(models, name)
	}
	d.last.Model[k] = o
}

// ByScope returns the parts of each scope.
func (d *Division) ByScope() map[Scope]Parts {
	out := make(map[Scope]Parts, len(d.models))
	for scope, models := range d.models {
		out[scope] = newParts(models)
	}
	return out
}

// modelOf returns the model of a part.
func modelOf(parts map[string]Model, name string) Model {
	model := parts[name]
	if model == nil {
		model = Model{}
		parts[name] = model
	}
	return model
}

func newParts(models map[string]Model) Parts {
	parts := make(Parts, 0, len(models))
	for _, name := range slices.Sorted(maps.Keys(models)) {
		parts = append(parts, newPart(name, models[name]))
	}
	return parts
}

// With returns new parts with some of them replaced or, if the new one is nil, removed.
func (p Parts) With(changed map[string]*Part) Parts {
	if len(changed) == 0 {
		return p
	}
	out := make(Parts, 0, len(p)+len(changed))
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		at, found := p.find(name)
		out = append(out, p[:at]...)
		if p = p[at:]; found {
			p = p[1:]
		}
		if part := changed[name]; part != nil {
			out = append(out, part)
		}
	}
	return append(out, p...)
}

func (p Parts) find(name string) (int, bool) {
	return slices.BinarySearchFunc(p, name, func(part *Part, name string) int { return strings.Compare(part.Name, name) })
}

// Model returns the model as a whole.
func (p Parts) Model() Model {
	whole := make(Model, p.Len())
	for _, part := range p {
		maps.Copy(whole, part.Model)
	}
	return whole
}

// Part returns the part with a name, or nil if there is none.
func (p Parts) Part(name string) *Part {
	if at, found := p.find(name); found {
		return p[at]
	}
	return nil
}

// Get returns the object of a key, or nil if there is none.
func (p Parts) Get(k Key) Object {
	return p.Part(k.part()).model()[k]
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
	look := p
	if set&attaching == attaching {
		first, _ := p.find(firstAttaching)
		look = p[:first]
	}
	out := make(Parts, 0, len(p))
	for _, part := range look {
		if left := part.selected(set); len(left.Model) > 0 {
			out = append(out, left)
		}
	}
	return append(out, p[len(look):]...)
}

func (p *Part) selected(set KindSet) *Part {
	if p.kinds&^set == 0 {
		return p
	}
	return newPart(p.Name, p.Select(set))
}

// Apply returns new parts with the changes made. It does not change p.
func (p Parts) Apply(changes []Change) Parts {
	models := map[string]Model{}
	for _, c := range changes {
		name := c.Key().part()
		if models[name] == nil {
			models[name] = Model{}
			maps.Copy(models[name], p.Part(name).model())
		}
		models[name].Apply([]Change{c})
	}
	changed := make(map[string]*Part, len(models))
	for name, m := range models {
		changed[name] = nil
		if len(m) > 0 {
			changed[name] = newPart(name, m)
		}
	}
	return p.With(changed)
}

// DiffParts is Diff for models that are divided into parts. The changes are in no order: Sort sorts the changes of all scopes together.
func DiffParts(have, want Parts) []Change {
	var steps []step
	for len(have) > 0 && len(want) > 0 {
		old, part := have[0], want[0]
		switch {
		case old == part:
			have, want = have[1:], want[1:]
		case old.Name == part.Name:
			steps = appendSteps(steps, old.Model, part.Model)
			have, want = have[1:], want[1:]
		case old.Name < part.Name:
			steps = appendSteps(steps, old.Model, nil)
			have = have[1:]
		default:
			steps = appendSteps(steps, nil, part.Model)
			want = want[1:]
		}
	}
	for _, old := range have {
		steps = appendSteps(steps, old.Model, nil)
	}
	for _, part := range want {
		steps = appendSteps(steps, nil, part.Model)
	}
	return changesOf(steps)
}

// model returns the objects of a part, which may be nil.
func (p *Part) model() Model {
	if p == nil {
		return nil
	}
	return p.Model
}

// changesOf returns the changes of steps.
func changesOf(steps []step) []Change {
	changes := make([]Change, len(steps))
	for i, s := range steps {
		changes[i] = s.Change
	}
	return changes
}
