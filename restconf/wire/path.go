package wire

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Parse reads the part of a path below a tree, still percent-encoded. It ignores empty
// segments.
func (d *Dialect) Parse(schema *yang.Schema, rest string) (tree.Target, error) {
	return d.parseBelow(schema, nil, rest)
}

// parseBelow is Parse for a path below a resource.
func (d *Dialect) parseBelow(schema *yang.Schema, base tree.Target, rest string) (tree.Target, error) {
	segments := strings.FieldsFunc(rest, func(c rune) bool { return c == '/' })
	t := slices.Clone(base)
	for len(segments) > 0 {
		if !t.IsRoot() && t.Last().IsList() {
			return nil, t.Invalid("the list " + t.Node().Name + " needs its keys before what follows")
		}
		s, used, err := d.step(schema, t.Schema(), segments)
		if err != nil {
			return nil, WithPath(err, t.Path())
		}
		t = append(t, s)
		segments = segments[used:]
	}
	return t, nil
}

// step reads the first step below parent, and returns how many segments it takes.
func (d *Dialect) step(schema *yang.Schema, parent *yang.Node, segments []string) (tree.Step, int, error) {
	escaped, values, keyed := segments[0], "", false
	if !d.Draft {
		escaped, values, keyed = strings.Cut(escaped, "=")
	}
	name, err := d.unescape(escaped)
	if err != nil {
		return tree.Step{}, 0, Invalid("bad percent-encoding in " + strconv.Quote(escaped))
	}
	node, err := d.child(schema, parent, name)
	if err != nil {
		return tree.Step{}, 0, err
	}
	var keys []string
	switch {
	case d.Draft:
		if keys, err = draftKeys(node, segments[1:]); err != nil {
			return tree.Step{}, 0, err
		}
	case keyed:
		keys = strings.Split(values, ",")
	}
	used := 1
	if d.Draft {
		used += len(keys)
	}
	keys, err = d.keys(node, keys)
	return tree.Step{Node: node, Keys: keys}, used, err
}

// draftKeys are the segments with a list's keys, or with a leaf-list's value,
// which follow its name.
func draftKeys(node *yang.Node, rest []string) ([]string, error) {
	n := 0
	switch node.Kind {
	case yang.List:
		n = max(len(node.Keys), 1)
	case yang.LeafList:
		n = 1
	}
	if n > len(rest) {
		return nil, Invalid("the list " + node.Name + " can only be reached entry by entry, by all its keys")
	}
	return rest[:n], nil
}

// child finds the node that name means below parent; nil is the datastore.
func (d *Dialect) child(schema *yang.Schema, parent *yang.Node, name string) (*yang.Node, error) {
	prefix, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		prefix, local = "", name
	}
	module := schema.Module(prefix)
	if prefixed && module == nil {
		return nil, &yang.Error{Type: "protocol", Tag: "unknown-element", Message: "there is no module named " + strconv.Quote(prefix)}
	}
	var node *yang.Node
	switch {
	case parent == nil && !prefixed:
		return nil, Invalid(`the first name has to be "module:name"`)
	case parent == nil:
		node = module.Child(local)
	case prefixed || d.Draft:
		node = parent.Child(prefix, local)
	default:
		node = parent.Child(parent.Module.Name, local)
	}
	if node == nil {
		return nil, Invalid("there is no node " + strconv.Quote(name) + " here")
	}
	return node, nil
}

// keys decodes and checks the keys of a list entry, or the value of a leaf-list entry.
func (d *Dialect) keys(node *yang.Node, escaped []string) ([]string, error) {
	if len(escaped) == 0 {
		return nil, nil
	}
	leaves := node.Keys
	if node.Kind == yang.LeafList {
		leaves = []*yang.Node{node}
	}
	if len(escaped) != len(leaves) {
		return nil, Invalid(node.Name + " does not have this number of keys")
	}
	keys := make([]string, len(leaves))
	for i, leaf := range leaves {
		text, err := d.unescape(escaped[i])
		if err != nil {
			return nil, Invalid("bad percent-encoding in " + strconv.Quote(escaped[i]))
		}
		if keys[i], err = leaf.Canonical(text); err != nil {
			return nil, d.Retag(err)
		}
	}
	return keys, nil
}

// URL writes t as a path below a tree's prefix.
func (d *Dialect) URL(t tree.Target) string {
	var b strings.Builder
	for i, s := range t {
		b.WriteByte('/')
		if i == 0 || s.Node.Module != t[i-1].Node.Module {
			b.WriteString(s.Node.Module.Name + ":")
		}
		b.WriteString(s.Node.Name)
		for j, key := range s.Keys {
			b.WriteByte(d.keyMarks[min(j, 1)])
			b.WriteString(strings.ReplaceAll(url.QueryEscape(key), "+", "%20"))
		}
	}
	return b.String()
}

// PointOf finds the entry that the entry at is placed before or after: point is a path
// below base, the request's target, or from the datastore. It is nil for other places.
func PointOf(schema *yang.Schema, base, at tree.Target, where, point string) (tree.Target, error) {
	if err := at.Ordered(); err != nil || !tree.NeedsPoint(where) {
		return nil, err
	}
	t, err := sibling(schema, base, at, point)
	if err != nil && !base.IsRoot() {
		if absolute, wrong := sibling(schema, nil, at, point); wrong == nil {
			return absolute, nil
		}
	}
	return t, err
}

func sibling(schema *yang.Schema, base, at tree.Target, point string) (tree.Target, error) {
	t, err := RFC8040.parseBelow(schema, base, point)
	if err == nil {
		err = at.CheckPoint(t)
	}
	return t, err
}
