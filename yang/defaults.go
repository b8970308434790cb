package yang

import (
	"bytes"
	"fmt"
)

// setDefault takes the default that the module gives a leaf. Of a leaf-list none is
// known: nothing here has one.
func (n *Node) setDefault(text string, given bool) error {
	if !given || n.Kind != Leaf {
		return nil
	}
	canonical, ok := n.typ.canonical(scalar{text, asText})
	if !ok {
		return fmt.Errorf("default %s: %w", quote(text), n.invalidValue(quote(text)))
	}
	n.Default, n.HasDefault = canonical, true
	tagged := *n
	tagged.isTagged = true
	n.tagged = &tagged
	return nil
}

// AddDefaults returns d with every leaf that is not there and has a default (RFC 7950
// section 7.6.1), and calls added with each. Leaves for which wanted is false, and
// those below d that can't be there, are left out. What d had is shared with it.
func AddDefaults(d *Data, wanted func(*Node) bool, added func(*Data)) *Data {
	if d.Node.typ != nil {
		return d
	}
	out := &Data{Node: d.Node, Children: make([]*Data, 0, len(d.Children))}
	for _, child := range d.Children {
		out.Children = append(out.Children, AddDefaults(child, wanted, added))
	}
	for _, node := range d.Node.Children {
		if d.instanceOf(node) != nil || !applies(node, d) {
			continue
		}
		if leaf := absentDefault(node, wanted, added); leaf != nil {
			out.Children = append(out.Children, leaf)
		}
	}
	sortBySchema(out.Children)
	return out
}

// absentDefault is what has to be told of a node that is not there: a leaf with its
// default, or a container that means nothing itself and has some in it; nil for
// nothing.
func absentDefault(node *Node, wanted func(*Node) bool, added func(*Data)) *Data {
	switch {
	case node.HasDefault && wanted(node):
		leaf := &Data{Node: node, Value: node.Default}
		added(leaf)
		return leaf
	case node.Kind == Container && !node.presence:
		if d := AddDefaults(&Data{Node: node}, wanted, added); len(d.Children) > 0 {
			return d
		}
	}
	return nil
}

// TrimDefaults returns d without the leaves whose value is their default; keys stay.
// What is left is shared with d.
func TrimDefaults(d *Data) *Data {
	if d.Node.typ != nil {
		return d
	}
	out := &Data{Node: d.Node, Children: make([]*Data, 0, len(d.Children))}
	for _, child := range d.Children {
		if !child.isDefault() {
			out.Children = append(out.Children, TrimDefaults(child))
		}
	}
	return out
}

// isDefault tells whether d is a leaf that says no more than if it weren't there.
func (d *Data) isDefault() bool { return d.Node.HasDefault && d.Value == d.Node.Default }

// TagDefault has a leaf that AddDefaults has added be written with the attribute
// "default" of RFC 6243 section 6 (in JSON as RFC 7952 has it). It is an instance of no
// node of the schema from then on.
func TagDefault(leaf *Data) { leaf.Node = leaf.Node.tagged }

// tagXML is the attribute in XML.
const tagXML = ` xmlns:wd="urn:ietf:params:xml:ns:netconf:default:1.0" wd:default="true"`

// writeTag writes the member with a leaf's attribute, after the leaf's.
func writeTag(buf *bytes.Buffer, n *Node, prefixed bool) {
	buf.WriteString(`,"@`)
	if prefixed {
		buf.WriteString(n.Module.Name + ":")
	}
	buf.WriteString(n.Name + `":{"ietf-netconf-with-defaults:default":true}`)
}
