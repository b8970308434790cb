package yang

import (
	"fmt"
	"strings"
)

// Validate checks what needs a whole subtree: mandatory, min-elements,
// max-elements, unique and when in d and below, and that leafrefs name something
// there is, as lookup tells; where lookup is nil they are not checked. The path of
// d's parent, at, stands before all error paths. It fails with Errors.
func (s *Schema) Validate(d *Data, at string, lookup func(target *Node, value string) bool) error {
	v := &validator{lookup: lookup}
	v.instance(d, at)
	if len(v.errors) > 0 {
		return v.errors
	}
	return nil
}

type validator struct {
	lookup func(target *Node, value string) bool
	errors Errors
}

func (v *validator) report(path, tag, appTag, format string, args ...any) {
	if len(v.errors) < maxFindings {
		v.errors = append(v.errors, &Error{
			Type: "application", Tag: tag, AppTag: appTag, Path: path, Message: fmt.Sprintf(format, args...),
		})
	}
}

func (v *validator) instance(d *Data, at string) {
	if d.Node.typ != nil {
		v.reference(d, at)
		return
	}
	path := d.Path(at)
	for i := 0; i < len(d.Children); {
		end := i + 1
		for end < len(d.Children) && d.Children[end].Node == d.Children[i].Node {
			end++
		}
		v.group(d, d.Children[i:end], path)
		i = end
	}
	v.absent(d, path)
	v.choices(d, path)
}

// group checks all instances of one node in d.
func (v *validator) group(d *Data, group []*Data, path string) {
	node := group[0].Node
	for _, when := range node.when {
		if d.Leaf(when.leaf.Name) != when.value {
			v.report(group[0].Path(path), "unknown-element", "", "%s: can't be here: only where %s is %s",
				node.Name, when.leaf.Name, quote(when.value))
		}
	}
	if node.Kind == List || node.Kind == LeafList {
		v.count(node, uint64(len(group)), path)
	}
	for _, unique := range node.unique {
		v.unique(unique, group, path)
	}
	for _, one := range group {
		v.instance(one, path)
	}
}

func (v *validator) count(node *Node, n uint64, path string) {
	path = node.Path(path)
	switch {
	case n < node.atLeast:
		v.report(path, "invalid-value", "too-few-elements", "%s: %d of them: want at least %d", node.Name, n, node.atLeast)
	case n > node.atMost:
		v.report(path, "invalid-value", "too-many-elements", "%s: %d of them: want at most %d", node.Name, n, node.atMost)
	}
}

// unique checks that no two entries have the same values in all of these leaves.
func (v *validator) unique(leaves []*Node, entries []*Data, path string) {
	seen := map[string]bool{}
	for _, entry := range entries {
		values := make([]string, 0, len(leaves))
		for _, leaf := range leaves {
			if instance := entry.instanceOf(leaf); instance != nil {
				values = append(values, instance.Value)
			}
		}
		if len(values) < len(leaves) {
			continue
		}
		if key := strings.Join(values, "\x00"); seen[key] {
			v.report(entry.Path(path), "invalid-value", "data-not-unique", "%s: another entry has %s too: want it in one alone",
				entry.Node.Name, quote(strings.Join(values, " ")))
		} else {
			seen[key] = true
		}
	}
}

// absent checks that what has to be in d is, also below containers that aren't
// there but mean nothing by that.
func (v *validator) absent(d *Data, path string) {
	for _, node := range d.Node.Children {
		if !node.demanding || d.instanceOf(node) != nil || !applies(node, d) {
			continue
		}
		switch node.Kind {
		case Container:
			v.instance(&Data{Node: node}, path)
		case Leaf:
			v.report(node.Path(path), "missing-element", "", "%s: not there: want %s", node.Name, node.typ.want)
		default:
			v.count(node, 0, path)
		}
	}
}

// applies reports whether node can be in d: its when holds, and the case that it
// is in, where there is one, is the one chosen.
func applies(node *Node, d *Data) bool {
	for _, when := range node.when {
		if d.Leaf(when.leaf.Name) != when.value {
			return false
		}
	}
	return chosen(node.cases, d)
}

// chosen reports whether d holds something of each of the cases.
func chosen(cases []choiceCase, d *Data) bool {
	for _, in := range cases {
		if !holds(in.choice, in.name, d) {
			return false
		}
	}
	return true
}

// holds reports whether d holds something of the choice: of the case of that
// name, or of any where the name is empty.
func holds(c *choice, name string, d *Data) bool {
	for _, child := range d.Children {
		if have := child.Node.caseOf(c); have != "" && (name == "" || have == name) {
			return true
		}
	}
	return false
}

func (v *validator) choices(d *Data, path string) {
	for _, c := range d.Node.choices {
		if c.mandatory && chosen(c.within, d) && !holds(c, "", d) {
			v.report(path, "data-missing", "missing-choice", "%s: not there: want one of its cases", c.name)
		}
	}
}

// reference checks a leaf that refers to another.
func (v *validator) reference(d *Data, at string) {
	target := d.Node.typ.target
	if target == nil || d.Node.typ.optional || v.lookup == nil || v.lookup(target, d.Value) {
		return
	}
	v.report(d.Path(at), "data-missing", "instance-required", "%s: there is no %s %s: want one that is there",
		d.Node.Name, target.Name, quote(d.Value))
}
