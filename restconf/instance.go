package restconf

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// lookup is the child of parent that s names, or nil.
func lookup(parent *yang.Data, s step) *yang.Data {
	for _, child := range parent.Children {
		if s.matches(child) {
			return child
		}
	}
	return nil
}

// descend follows steps below d; nil where one leads nowhere.
func descend(d *yang.Data, steps target) *yang.Data {
	for _, s := range steps {
		if d = lookup(d, s); d == nil {
			return nil
		}
	}
	return d
}

// descendAll are all instances that steps name below d: several where the last is
// a whole list.
func descendAll(d *yang.Data, steps target) []*yang.Data {
	if len(steps) == 0 {
		return []*yang.Data{d}
	}
	parent := descend(d, steps.parent())
	if parent == nil {
		return nil
	}
	var found []*yang.Data
	for _, child := range parent.Children {
		if steps.last().matches(child) {
			found = append(found, child)
		}
	}
	return found
}

// ensure follows steps below d and makes the containers that are missing. It
// returns nil where the entry of a list is missing: that is not made on the way.
func ensure(d *yang.Data, steps target) *yang.Data {
	for _, s := range steps {
		child := lookup(d, s)
		if child == nil {
			if s.node.Kind != yang.Container {
				return nil
			}
			child = &yang.Data{Node: s.node}
			insert(d, child)
		}
		d = child
	}
	return d
}

// replace puts child in the place of the one of its name, or adds it. It tells
// whether there was one.
func replace(parent, child *yang.Data) bool {
	s := stepOf(child)
	for i, old := range parent.Children {
		if s.matches(old) {
			parent.Children[i] = child
			return true
		}
	}
	insert(parent, child)
	return false
}

// insert adds instances of one node after the last sibling that the schema has
// before or with them.
func insert(parent *yang.Data, added ...*yang.Data) {
	at := len(parent.Children)
	for at > 0 && order(parent.Children[at-1].Node) > order(added[0].Node) {
		at--
	}
	parent.Children = slices.Insert(parent.Children, at, added...)
}

// insertAll inserts instances of several nodes, those of one side by side.
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

// remove takes away what s names, and tells whether it was there.
func remove(parent *yang.Data, s step) bool {
	before := len(parent.Children)
	parent.Children = slices.DeleteFunc(parent.Children, s.matches)
	return len(parent.Children) < before
}

// split is a container without the entries that are units of their own, and
// those entries. It leaves d as it is.
func split(d *yang.Data) (own *yang.Data, entries []*yang.Data) {
	own = &yang.Data{Node: d.Node}
	for _, child := range d.Children {
		switch {
		case isUnit(child.Node):
			entries = append(entries, child)
			continue
		case child.Node.Kind == yang.Container:
			var below []*yang.Data
			child, below = split(child)
			entries = append(entries, below...)
		}
		own.Children = append(own.Children, child)
	}
	return own, entries
}

// isUnit tells whether each instance of n, below a top container, is stored on
// its own.
func isUnit(n *yang.Node) bool { return n.Kind == yang.List && datastore.UnitNode(n) == n }

// join is the inverse of split: a top container made of its units, nil of none.
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
			insert(ensure(d, stepsTo(list.Parent)[1:]), entries[list]...)
		}
	}
	return d, nil
}

// stepsTo are the steps to a container that has only containers above it.
func stepsTo(n *yang.Node) target {
	if n.Parent == nil {
		return target{{node: n}}
	}
	return append(stepsTo(n.Parent), step{node: n})
}
