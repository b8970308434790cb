package yang

import (
	"slices"
	"strings"
)

// Data is an instance of a schema node. As in an XML document, the entries of a
// list and the values of a leaf-list are siblings with the same Node; Children
// are in schema order, entries of one list in the order in which they came.
type Data struct {
	Node     *Node
	Value    string  // a Leaf's or a LeafList value's canonical lexical form
	Children []*Data // of a Container or a List entry
}

// Style is how JSON names are written.
type Style uint8

const (
	// RFC7951 names a member "module:name" at the top and wherever the module
	// differs from the parent's.
	RFC7951 Style = iota
	// Draft02 leaves the top member without prefix (restconf.md, "GET member names").
	Draft02
)

// Child returns the first child of that name, or nil.
func (d *Data) Child(name string) *Data {
	for _, child := range d.Children {
		if child.Node.Name == name {
			return child
		}
	}
	return nil
}

// Leaf returns the value of the child of that name, or "" where there is none.
func (d *Data) Leaf(name string) string {
	if child := d.Child(name); child != nil {
		return child.Value
	}
	return ""
}

// All returns the children of that name: the entries of a list, the values of a
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

// Key returns the values of a list entry's keys, in the order of the key
// statement; "" stands for one that isn't there. It is empty for all else.
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

// missingKeys names the keys that an entry doesn't have.
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

// Path returns the instance-identifier (RFC 7951 section 6.11) of d, whose
// parent's is at: "" where d is at the top.
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
	default: // the name says it all
	}
	return out.String()
}

// Path returns the path of all instances of n whose parent's is at, "" where n is
// at the top: the name, with its module at the top and where that differs from the
// parent's.
func (n *Node) Path(at string) string {
	if at == "" || n.Parent == nil || n.Parent.Module != n.Module {
		return at + "/" + n.Module.Name + ":" + n.Name
	}
	return at + "/" + n.Name
}

// writePredicate writes a value in the quotes that it doesn't hold; XPath has no
// spelling for one that holds both kinds.
func writePredicate(out *strings.Builder, name, value string) {
	quote := "'"
	if strings.Contains(value, quote) {
		quote = `"`
	}
	out.WriteString("[" + name + "=" + quote + value + quote + "]")
}

// clone is a copy of d that shares nothing with it that can change.
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

// sortBySchema puts siblings in schema order and keeps the order of those of one
// node.
func sortBySchema(siblings []*Data) {
	for i := 1; i < len(siblings); i++ {
		if siblings[i].Node.index < siblings[i-1].Node.index {
			slices.SortStableFunc(siblings, func(a, b *Data) int { return a.Node.index - b.Node.index })
			return
		}
	}
}
