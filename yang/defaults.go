package yang

import (
	"bytes"
	"fmt"
)

// setDefault sets the default that the module gives a leaf. It ignores defaults of
// leaf-lists, because no module here has one.
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

// AddDefaults returns d with every absent leaf that has a default (RFC 7950 section 7.6.1),
// and calls added with each. It leaves out leaves for which wanted returns false, and leaves
// that cannot be present below d. The result shares the data of d.
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

// absentDefault returns the default data of an absent node: a leaf with its default, or a
// container without presence that contains defaults; nil if there is none.
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

// TrimDefaults returns d without the leaves whose value is their default; keys stay. The
// result shares the data of d.
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

// isDefault reports whether d is a leaf with its default value.
func (d *Data) isDefault() bool { return d.Node.HasDefault && d.Value == d.Node.Default }

// TagDefault marks a leaf that AddDefaults has added, so that it is written with the
// attribute "default" of RFC 6243 section 6 (in JSON as in RFC 7952). After that, the leaf is
// no longer an instance of a schema node.
func TagDefault(leaf *Data) { leaf.Node = leaf.Node.tagged }

// tagXML returns the attribute in XML.
const tagXML = ` xmlns:wd="urn:ietf:params:xml:ns:netconf:default:1.0" wd:default="true"`

// writeTag writes the JSON member for a leaf's attribute, after the leaf's member.
func writeTag(buf *bytes.Buffer, n *Node, prefixed bool) {
	buf.WriteString(`,"@`)
	if prefixed {
		buf.WriteString(n.Module.Name + ":")
	}
	buf.WriteString(n.Name + `":{"ietf-netconf-with-defaults:default":true}`)
}
