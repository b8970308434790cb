package yang

import (
	"fmt"
	"regexp"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// resolve sets the references between nodes, after all nodes were built.
func (l *loader) resolve() error {
	for _, e := range l.built {
		if err := l.resolveNode(e, l.nodes[e]); err != nil {
			return fmt.Errorf("%s: %w", e.Path(), err)
		}
	}
	for _, module := range l.schema.Modules {
		for _, node := range module.Top {
			node.markDemanding()
		}
	}
	return nil
}

func (l *loader) resolveNode(e *goyang.Entry, node *Node) error {
	var err error
	if node.Kind == Leaf || node.Kind == LeafList {
		if node.typ, err = l.compileType(e, e.Type); err != nil {
			return err
		}
		if err = node.setDefault(e.SingleDefaultValue()); err != nil {
			return err
		}
	}
	if node.Keys, err = leaves(node, e.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	for _, extra := range e.Extra["unique"] {
		unique, err := leaves(node, extra.(*goyang.Value).Name)
		if err != nil {
			return fmt.Errorf("unique: %w", err)
		}
		node.unique = append(node.unique, unique)
	}
	for _, extra := range e.Extra["when"] {
		when, err := l.condition(node, extra.(*goyang.Value))
		if err != nil {
			return fmt.Errorf("when: %w", err)
		}
		node.when = append(node.when, when)
	}
	return nil
}

// leaves returns the children of a list that a key or unique statement names.
func leaves(list *Node, statement string) ([]*Node, error) {
	var out []*Node
	for _, name := range strings.Fields(statement) {
		_, name = cutPrefix(name)
		leaf := list.Child("", name)
		if leaf == nil || leaf.Kind != Leaf {
			return nil, fmt.Errorf("no leaf %s in the list", name)
		}
		out = append(out, leaf)
	}
	return out, nil
}

// equality is the only supported form of when.
var equality = regexp.MustCompile(`^([\w.-]+:)?([\w.-]+) *= *'([^']*)'$`)

// condition compiles the when of the augment that adds node. Its leaf is a sibling of node,
// because the context is the augment's target.
func (l *loader) condition(node *Node, when *goyang.Value) (condition, error) {
	if _, ok := when.Parent.(*goyang.Augment); !ok || node.Parent == nil {
		return condition{}, fmt.Errorf("%q is supported only in augments", when.Name)
	}
	match := equality.FindStringSubmatch(when.Name)
	if match == nil {
		return condition{}, fmt.Errorf("%q is not supported: want leaf = 'value'", when.Name)
	}
	leaf := node.Parent.Child("", match[2])
	if leaf == nil || leaf.Kind != Leaf {
		return condition{}, fmt.Errorf("%q: no leaf %s", when.Name, match[2])
	}
	value := match[3]
	if prefix, name := cutPrefix(value); prefix != "" {
		module := goyang.FindModuleByPrefix(when, prefix)
		if module == nil {
			return condition{}, fmt.Errorf("%q: no module has the prefix %s", when.Name, prefix)
		}
		value = module.Name + ":" + name
	}
	return condition{leaf, value}, nil
}

// markDemanding sets demanding on n and its descendants.
func (n *Node) markDemanding() bool {
	n.demanding = n.required()
	below := false
	for _, child := range n.Children {
		below = child.markDemanding() || below
	}
	for _, c := range n.choices {
		below = below || c.mandatory
	}
	if n.Kind == Container && !n.presence && below {
		n.demanding = true
	}
	return n.demanding
}

// cutPrefix splits "prefix:name"; prefix is empty if there is none.
func cutPrefix(name string) (prefix, local string) {
	if prefix, local, ok := strings.Cut(name, ":"); ok {
		return prefix, local
	}
	return "", name
}
