package document

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// named are the containers, and the lists in them, that a name may mean. For a container
// that has the name what is in it is not looked at.
func (r *Reader) named(name string) []*yang.Node { return named(name, r.tops) }

func named(name string, among []*yang.Node) (nodes []*yang.Node) {
	for _, n := range among {
		switch {
		case n.Kind != yang.Container && !isEntries(n):
		case means(name, n):
			nodes = append(nodes, n)
		case n.Kind == yang.Container:
			nodes = append(nodes, named(name, n.Children)...)
		}
	}
	return nodes
}

// ancestors are the nodes that a node lies in, outermost first.
func ancestors(n *yang.Node) (above []*yang.Node) {
	for n = n.Parent; n != nil; n = n.Parent {
		above = append(above, n)
	}
	slices.Reverse(above)
	return above
}

// means reports whether a name, with its module or without, is a node's.
func means(name string, n *yang.Node) bool {
	module, local, prefixed := strings.Cut(name, ":")
	return name == n.Name || prefixed && module == n.Module.Name && local == n.Name
}

// childOf is the child of that name, with its module or without, or nil.
func childOf(n *yang.Node, name string) *yang.Node {
	module, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		module, local = "", name
	}
	return n.Child(module, local)
}

// names are the top containers in a sentence.
func (r *Reader) names() string { return alternatives(r.tops) }

func alternatives(nodes []*yang.Node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Module.Name + ":" + n.Name
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func keyNames(n *yang.Node) string {
	var names []string
	for _, key := range n.Keys {
		names = append(names, key.Name)
	}
	return strings.Join(names, " and ")
}

// keyOf is the key of an entry: canonical where it is one of its type, and as it stands
// otherwise, so that others can say what is wrong with it.
func keyOf(n *yang.Node, value *Value) ([]string, error) {
	var keys []string
	for _, leaf := range n.Keys {
		m := value.memberOf(leaf)
		if m == nil || !m.Value.isScalar() {
			return nil, fmt.Errorf("%s: an entry without its key: want %s", n.Name, keyNames(n))
		}
		text := m.Value.text
		if canonical, err := leaf.Canonical(text); err == nil {
			text = canonical
		}
		keys = append(keys, text)
	}
	return keys, nil
}
