package tree

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// lookup is the child of parent that s names, or nil.
func lookup(parent *yang.Data, s Step) *yang.Data {
	for _, child := range parent.Children {
		if s.Matches(child) {
			return child
		}
	}
	return nil
}

// Descend follows steps below d; nil if one leads nowhere.
func Descend(d *yang.Data, steps Target) *yang.Data {
	for _, s := range steps {
		if d = lookup(d, s); d == nil {
			return nil
		}
	}
	return d
}

// descendAll are all instances that steps name below d: several if the last is a whole
// list.
func descendAll(d *yang.Data, steps Target) []*yang.Data {
	if len(steps) == 0 {
		return []*yang.Data{d}
	}
	parent := Descend(d, steps.Parent())
	if parent == nil {
		return nil
	}
	var found []*yang.Data
	for _, child := range parent.Children {
		if steps.Last().Matches(child) {
			found = append(found, child)
		}
	}
	return found
}

// ensure follows steps below d and makes missing containers. It returns nil if the entry
// of a list is missing.
func ensure(d *yang.Data, steps Target) *yang.Data {
	for _, s := range steps {
		child := lookup(d, s)
		if child == nil {
			if s.Node.Kind != yang.Container {
				return nil
			}
			child = &yang.Data{Node: s.Node}
			insert(d, child)
		}
		d = child
	}
	return d
}

// replace puts child in the place of its namesake, or adds it. It reports whether there was
// one.
func replace(parent, child *yang.Data) bool {
	s := StepOf(child)
	for i, old := range parent.Children {
		if s.Matches(old) {
			parent.Children[i] = child
			return true
		}
	}
	insert(parent, child)
	return false
}

// insert adds instances of one node after the siblings of that node, and of the nodes
// before it in the schema.
func insert(parent *yang.Data, added ...*yang.Data) {
	at := len(parent.Children)
	for at > 0 && order(parent.Children[at-1].Node) > order(added[0].Node) {
		at--
	}
	parent.Children = slices.Insert(parent.Children, at, added...)
}

// insertAll inserts instances of several nodes, the instances of one node side by side.
func insertAll(parent *yang.Data, added []*yang.Data) {
	for len(added) > 0 {
		n := 1
		for n < len(added) && added[n].Node == added[0].Node {
			n++
		}
		insert(parent, added[:n]...)
		added = added[n:]
	}
}

func order(n *yang.Node) int { return slices.Index(n.Parent.Children, n) }

// remove removes what s names, and reports whether it was there.
func remove(parent *yang.Data, s Step) bool {
	before := len(parent.Children)
	parent.Children = slices.DeleteFunc(parent.Children, s.Matches)
	return len(parent.Children) < before
}

// Split is a container without the entries that are units, and those entries. It does not
// change d.
func Split(d *yang.Data) (own *yang.Data, entries []*yang.Data) {
	own = &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		switch {
		case IsUnit(child.Node):
			entries = append(entries, child)
			continue
		case child.Node.Kind == yang.Container:
			var below []*yang.Data
			child, below = Split(child)
			entries = append(entries, below...)
		}
		own.Children = append(own.Children, child)
	}
	return own, entries
}

// IsUnit reports whether n is a list whose entries are units.
func IsUnit(n *yang.Node) bool { return n.Kind == yang.List && datastore.UnitNode(n) == n }

// join is the inverse of Split: a top container made of its units, nil of none.
func join(top *yang.Node, units []*datastore.Unit) (*yang.Data, error) {
	if len(units) == 0 {
		return nil, nil
	}
	d := &yang.Data{Node: top}
	entries := map[*yang.Node][]*yang.Data{}
	for _, u := range units {
		one, err := u.Parse()
		if err != nil {
			return nil, err
		}
		if u.Node == top {
			d = one
			continue
		}
		entries[u.Node] = append(entries[u.Node], one)
	}
	for _, list := range datastore.UnitLists(top) {
		if len(entries[list]) > 0 {
			insert(ensure(d, StepsTo(list.Parent)[1:]), entries[list]...)
		}
	}
	return d, nil
}

// IsLeaf reports whether n is a leaf or leaf-list.
func IsLeaf(n *yang.Node) bool { return n.Kind == yang.Leaf || n.Kind == yang.LeafList }
