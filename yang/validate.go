package yang

import (
	"fmt"
	"slices"
	"strings"
)

// Validate checks what needs a whole subtree: mandatory, min-elements, max-elements, unique
// and when in d and below, and that leafrefs refer to existing values. lookup finds those; if
// it is nil, leafrefs are not checked. at is the path of d's parent, the prefix of all error
// paths. The error is of type Errors.
func (s *Schema) Validate(d *Data, at string, lookup func(target *Node, value string) bool) error {
	v := &validator{at: at, lookup: lookup}
	v.instance(d, 1)
	if len(v.errors) > 0 {
		return v.errors
	}
	return nil
}

type validator struct {
	at     string
	lookup func(target *Node, value string) bool
	open   []step // the instances from the validated one down to the current one
	errors Errors
}

// report records an error at the current instance.
func (v *validator) report(below []step, tag, appTag, format string, args ...any) {
	if len(v.errors) < maxFindings {
		path := pathOf(pathOf(v.at, v.open), below)
		v.errors = append(v.errors, &Error{
			Type: "application", Tag: tag, AppTag: appTag, Path: path, Message: fmt.Sprintf(format, args...),
		})
	}
}

// whole returns the steps to all instances of node.
func whole(node *Node) []step { return []step{{node: node}} }

// instance checks d, which has that position among the instances of its node.
func (v *validator) instance(d *Data, position int) {
	if d.Node.typ != nil {
		v.reference(d)
		return
	}
	v.open = append(v.open, step{d.Node, d, position})
	defer func() { v.open = v.open[:len(v.open)-1] }()
	for i := 0; i < len(d.Children); {
		end := i + 1
		for end < len(d.Children) && d.Children[end].Node == d.Children[i].Node {
			end++
		}
		v.group(d, d.Children[i:end])
		i = end
	}
	v.absent(d)
	v.choices(d)
}

// group checks all instances of one node in d.
func (v *validator) group(d *Data, group []*Data) {
	node := group[0].Node
	for _, when := range node.when {
		if d.Leaf(when.leaf.Name) != when.value {
			v.report([]step{{node, group[0], 1}}, "unknown-element", "", "%s: not allowed here: allowed only if %s is %s",
				node.Name, when.leaf.Name, quote(when.value))
		}
	}
	if node.Kind == List || node.Kind == LeafList {
		v.count(node, uint64(len(group)))
	}
	for _, unique := range node.unique {
		v.unique(unique, group)
	}
	for i, one := range group {
		v.instance(one, i+1)
	}
}

func (v *validator) count(node *Node, n uint64) {
	switch {
	case n < node.atLeast:
		v.report(whole(node), "invalid-value", "too-few-elements", "%s: %d of them: want at least %d", node.Name, n, node.atLeast)
	case n > node.atMost:
		v.report(whole(node), "invalid-value", "too-many-elements", "%s: %d of them: want at most %d", node.Name, n, node.atMost)
	}
}

// unique checks that no two entries have the same values in all of these leaves.
func (v *validator) unique(leaves []*Node, entries []*Data) {
	seen := map[string]bool{}
	for i, entry := range entries {
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
			v.report([]step{{entry.Node, entry, i + 1}}, "invalid-value", "data-not-unique", "%s: another entry also has %s: want it in only one",
				entry.Node.Name, quote(strings.Join(values, " ")))
		} else {
			seen[key] = true
		}
	}
}

// absent checks that required nodes are present in d, and in absent containers without
// presence below it.
func (v *validator) absent(d *Data) {
	for _, node := range d.Node.Children {
		if !node.demanding || d.instanceOf(node) != nil || !applies(node, d) {
			continue
		}
		switch node.Kind {
		case Container:
			v.instance(&Data{Node: node}, 1)
		case Leaf:
			v.report(whole(node), "missing-element", "", "%s: missing: want %s", node.Name, node.typ.want)
		default:
			v.count(node, 0)
		}
	}
}

// applies reports whether node may be present in d: its when holds, and its case of a choice,
// if any, is the chosen one.
func applies(node *Node, d *Data) bool {
	for _, when := range node.when {
		if d.Leaf(when.leaf.Name) != when.value {
			return false
		}
	}
	return chosen(node.cases, d)
}

// chosen reports whether d has data of each of the cases.
func chosen(cases []choiceCase, d *Data) bool {
	return !slices.ContainsFunc(cases, func(in choiceCase) bool { return !holds(in.choice, in.name, d) })
}

// holds reports whether d has data of the choice: of the case with that name, or of any case
// if the name is empty.
func holds(c *choice, name string, d *Data) bool {
	for _, child := range d.Children {
		if have := child.Node.caseOf(c); have != "" && (name == "" || have == name) {
			return true
		}
	}
	return false
}

func (v *validator) choices(d *Data) {
	for _, c := range d.Node.choices {
		if c.mandatory && chosen(c.within, d) && !holds(c, "", d) {
			v.report(nil, "data-missing", "missing-choice", "%s: missing: want one of its cases", c.name)
		}
	}
}

// reference checks a leafref.
func (v *validator) reference(d *Data) {
	target := d.Node.typ.target
	if target == nil || d.Node.typ.optional || v.lookup == nil || v.lookup(target, d.Value) {
		return
	}
	v.report([]step{{d.Node, d, 1}}, "data-missing", "instance-required", "%s: %s %s does not exist: want an existing one",
		d.Node.Name, target.Name, quote(d.Value))
}
