package tree

import (
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Target names a resource of the tree. A Target without steps is the datastore.
type Target []Step

// Step names an instance below the previous step: a container, a leaf, an entry of a
// list or leaf-list, or (without keys) a whole list.
type Step struct {
	Node *yang.Node
	Keys []string // canonical; the key of a leaf-list entry is its value
}

// IsRoot reports whether t is the datastore.
func (t Target) IsRoot() bool { return len(t) == 0 }

// Last is the last step.
func (t Target) Last() Step { return t[len(t)-1] }

// Node is the schema node of the last step.
func (t Target) Node() *yang.Node { return t.Last().Node }

// Top is the schema node of the first step.
func (t Target) Top() *yang.Node { return t[0].Node }

// Parent is the resource that holds t.
func (t Target) Parent() Target { return t[:len(t)-1] }

// Child is the resource below t that s names.
func (t Target) Child(s Step) Target { return append(slices.Clone(t), s) }

// Schema is the node of t; nil for the datastore.
func (t Target) Schema() *yang.Node {
	if t.IsRoot() {
		return nil
	}
	return t.Node()
}

// unit is the index of the step that names the unit (datastore.Unit) of a list in which
// t lies, or -1.
func (t Target) unit() int {
	if t.IsRoot() {
		return -1
	}
	unit := datastore.UnitNode(t.Node())
	for i, s := range t {
		if s.Node == unit && s.Node.Kind == yang.List && s.Keys != nil {
			return i
		}
	}
	return -1
}

// document is the path of the document that t lies in, and the rest of t below it.
func (t Target) document() (at, below Target) {
	i := max(t.unit(), 0)
	return t[:i+1], t[i+1:]
}

// holdsUnits reports whether t is a container, so that entries below it may be units.
func (t Target) holdsUnits() bool { return t.unit() < 0 && t.Node().Kind == yang.Container }

// isListOfUnits reports whether t is a whole list whose entries are units.
func (t Target) isListOfUnits() bool { return t.Last().IsList() && IsUnit(t.Node()) }

// entry is the list of the entry that t names, and the keys of the entry and of the
// entries around it. list is nil if t does not name an entry.
func (t Target) entry() (list *yang.Node, keys []string) {
	if t.IsRoot() || t.Node().Kind != yang.List || t.Last().Keys == nil {
		return nil, nil
	}
	for _, s := range t {
		keys = append(keys, s.Keys...)
	}
	return t.Node(), keys
}

// Path is t as an instance-identifier, for error-path.
func (t Target) Path() string {
	at := ""
	for _, s := range t {
		at = s.Path(at)
	}
	return at
}

// IsList reports whether s is a list or leaf-list as a whole.
func (s Step) IsList() bool {
	return s.Keys == nil && (s.Node.Kind == yang.List || s.Node.Kind == yang.LeafList)
}

// data is an instance that s names, with nothing but its keys.
func (s Step) data() *yang.Data {
	d := &yang.Data{Node: s.Node}
	if s.Node.Kind == yang.LeafList {
		d.Value = s.Keys[0]
		return d
	}
	for i, key := range s.Keys {
		d.Children = append(d.Children, &yang.Data{Node: s.Node.Keys[i], Value: key})
	}
	return d
}

// Matches reports whether s names d.
func (s Step) Matches(d *yang.Data) bool {
	switch {
	case d.Node != s.Node:
		return false
	case s.Keys == nil:
		return true
	case d.Node.Kind == yang.LeafList:
		return d.Value == s.Keys[0]
	}
	return slices.Equal(d.Key(), s.Keys)
}

// CheckKeys fails if d, an instance of the last step's node, is not the instance that t names.
func (t Target) CheckKeys(d *yang.Data) error {
	if s := t.Last(); !s.Matches(d) {
		return t.Invalid("the key in the body, " + strings.Join(StepOf(d).Keys, " ") + ", is not the path's, " + strings.Join(s.Keys, " "))
	}
	return nil
}

// StepOf names d among its siblings.
func StepOf(d *yang.Data) Step {
	switch {
	case d.Node.Kind == yang.LeafList:
		return Step{d.Node, []string{d.Value}}
	case d.Node.Kind == yang.List && len(d.Node.Keys) > 0:
		return Step{d.Node, d.Key()}
	}
	return Step{Node: d.Node}
}

// StepsTo is the Target of a container that has only containers above it, or of a list
// right below such a container, as a whole.
func StepsTo(n *yang.Node) Target {
	if n.Parent == nil {
		return Target{{Node: n}}
	}
	return append(StepsTo(n.Parent), Step{Node: n})
}

// Path is the instance-identifier of s below the resource of path at.
func (s Step) Path(at string) string {
	if s.IsList() {
		return s.Node.Path(at)
	}
	return s.data().Path(at)
}

// pathOf is the path of an entry that is a unit.
func pathOf(entry *yang.Data) Target {
	return append(StepsTo(entry.Node.Parent), StepOf(entry))
}
