package yang

import (
	"slices"
	"strings"
)

// Data is an instance of a schema node. As in an XML document, the entries of a list and
// the values of a leaf-list are siblings with the same Node. Children are in schema order;
// the entries of one list keep their order.
type Data struct {
	Node     *Node
	Value    string  // a Leaf's or a LeafList value's canonical lexical form
	Children []*Data // of a Container or a List entry
}

// Style is a way to write JSON names.
type Style uint8

const (
	// RFC7951 names a member "module:name" at the top level, and if its module differs from
	// its parent's.
	RFC7951 Style = iota
	// Draft02 writes no prefix at the top level (docs/restconf.md, "Two dialects").
	Draft02
)

// Child returns the first child with that name, or nil.
func (d *Data) Child(name string) *Data {
	for _, child := range d.Children {
		if child.Node.Name == name {
			return child
		}
	}
	return nil
}

// Leaf returns the value of the child with that name, or "" if there is none.
func (d *Data) Leaf(name string) string {
	if child := d.Child(name); child != nil {
		return child.Value
	}
	return ""
}

// All returns the children with that name: the entries of a list, or the values of a
// leaf-list.
func (d *Data) All(name string) []*Data {
	var out []*Data
	for _, child := range d.Children {
		if child.Node.Name == name {
			out = append(out, child)
		}
	}
	return out
}

// Key returns the values of a list entry's keys, in the order of the key statement; "" for
// a missing key. It is empty for all other data.
func (d *Data) Key() []string {
	if len(d.Node.Keys) == 0 {
		return nil
	}
	out := make([]string, len(d.Node.Keys))
	for i, key := range d.Node.Keys {
		if leaf := d.instanceOf(key); leaf != nil {
			out[i] = leaf.Value
		}
	}
	return out
}

// missingKeys returns the names of the keys that an entry does not have.
func (d *Data) missingKeys() []string {
	var out []string
	for _, key := range d.Node.Keys {
		if d.instanceOf(key) == nil {
			out = append(out, key.Name)
		}
	}
	return out
}

// instanceOf returns the first child that is an instance of node, or nil.
func (d *Data) instanceOf(node *Node) *Data {
	for _, child := range d.Children {
		if child.Node == node {
			return child
		}
	}
	return nil
}

// Path returns the instance-identifier of d (RFC 7951 section 6.11). at is the path of its
// parent, "" at the top level.
func (d *Data) Path(at string) string {
	var out strings.Builder
	out.WriteString(d.Node.Path(at))
	switch d.Node.Kind {
	case LeafList:
		writePredicate(&out, ".", d.Value)
	case List:
		for i, value := range d.Key() {
			writePredicate(&out, d.Node.Keys[i].Name, value)
		}
	default: // the name is enough
	}
	return out.String()
}

// Path returns the path of all instances of n. at is the path of the parent, "" at the top
// level. The name has its module at the top level and if it differs from the parent's.
func (n *Node) Path(at string) string {
	if at == "" || n.Parent == nil || n.Parent.Module != n.Module {
		return at + "/" + n.Module.Name + ":" + n.Name
	}
	return at + "/" + n.Name
}

// writePredicate writes a value in the kind of quotes that it does not contain. XPath cannot
// express a value that contains both kinds.
func writePredicate(out *strings.Builder, name, value string) {
	quote := "'"
	if strings.Contains(value, quote) {
		quote = `"`
	}
	out.WriteString("[" + name + "=" + quote + value + quote + "]")
}

// clone returns a deep copy of d.
func (d *Data) clone() *Data {
	out := &Data{Node: d.Node, Value: d.Value}
	if d.Children != nil {
		out.Children = make([]*Data, len(d.Children))
		for i, child := range d.Children {
			out.Children[i] = child.clone()
		}
	}
	return out
}

// sortBySchema sorts siblings in schema order. Instances of one node keep their order.
func sortBySchema(siblings []*Data) {
	for i := 1; i < len(siblings); i++ {
		if siblings[i].Node.index < siblings[i-1].Node.index {
			slices.SortStableFunc(siblings, func(a, b *Data) int { return a.Node.index - b.Node.index })
			return
		}
	}
}
