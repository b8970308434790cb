package document

import (
	"bytes"
	"errors"
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Entry is what is written by itself: an entry of an outermost list that has keys, or a
// container without those.
type Entry struct {
	File string
	Line int
	// Key is the entry's; nil of a container.
	Key []string
	// Data are the entry as the schema here reads it, leniently; nil where it finds Problems.
	// A server may know more than this program.
	Data *yang.Data
	// Problems are what is wrong with the entry by the schema here, each an *Error.
	Problems []error

	node  *yang.Node
	above []*yang.Node // the containers that it lies in, outermost first
	value *Value
}

// Node is the entry's list, or the container.
func (e *Entry) Node() *yang.Node { return e.node }

// Top is the top container that the entry lies in, or is.
func (e *Entry) Top() *yang.Node { return e.node.Top() }

// Name is the entry in a sentence: "pods 8f2a6d5e-…".
func (e *Entry) Name() string { return strings.Join(append([]string{e.node.Name}, e.Key...), " ") }

// Target is the entry's path in URLs, below the datastore.
func (e *Entry) Target() string {
	at := parentURL(e.above) + "/" + nameBelow(e.above, e.node)
	for i, key := range e.Key {
		at += string("=,"[min(i, 1)]) + strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
	}
	return at
}

func parentURL(above []*yang.Node) (at string) {
	for i, n := range above {
		at += "/" + nameBelow(above[:i], n)
	}
	return at
}

// nameBelow is a node's name where those above say the module already.
func nameBelow(above []*yang.Node, n *yang.Node) string {
	if len(above) > 0 && above[len(above)-1].Module == n.Module {
		return n.Name
	}
	return n.Module.Name + ":" + n.Name
}

// Body is the entry as the body of a PUT, or the value of an edit: canonical by RFC 7951
// where the schema here can read it, else as it was written.
func (e *Entry) Body() []byte {
	var b bytes.Buffer
	b.WriteString(`{"` + e.node.Module.Name + ":" + e.node.Name + `":`)
	if e.Key != nil {
		b.WriteByte('[')
	}
	b.Write(e.Content())
	if e.Key != nil {
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Content is the object in Body.
func (e *Entry) Content() []byte {
	var b bytes.Buffer
	if e.Data != nil {
		yang.EncodeObject(&b, e.Data)
	} else {
		e.value.write(&b)
	}
	return b.Bytes()
}

// Same reports whether other is known to be what e says: as a whole where e is an entry, in
// what e speaks of where it is a container.
func (e *Entry) Same(other *Entry) bool {
	if e.Data == nil || other == nil || other.Data == nil {
		return false
	}
	said := e.Data
	if e.Key == nil {
		said = yang.Merge(other.Data, e.Data)
	}
	var whole bytes.Buffer
	yang.EncodeObject(&whole, said)
	return bytes.Equal(whole.Bytes(), other.Content())
}

// Leaf is the value of a leaf right in the entry, as text; empty where there is none.
func (e *Entry) Leaf(name string) string {
	if e.Data != nil {
		return e.Data.Leaf(name)
	}
	if m := e.value.member(name); m != nil && m.Value.isScalar() {
		return m.Value.text
	}
	return ""
}

// path is the entry's parent as an instance-identifier.
func (e *Entry) path() (at string) {
	for _, n := range e.above {
		at = n.Path(at)
	}
	return at
}

// read decodes and validates the entry by a schema.
func (e *Entry) read(schema *yang.Schema) {
	var parent *yang.Node
	if len(e.above) > 0 {
		parent = e.above[len(e.above)-1]
	}
	data, err := schema.DecodeJSON(e.Body(), parent, e.path(), yang.Lenient)
	if err == nil {
		err = schema.Validate(data[0], e.path(), nil)
	}
	if err == nil {
		e.Data = data[0]
		return
	}
	for _, one := range asErrors(err) {
		e.Problems = append(e.Problems, e.At(one.Path, one))
	}
}

func asErrors(err error) yang.Errors {
	if many, ok := errors.AsType[yang.Errors](err); ok {
		return many
	}
	if one, ok := errors.AsType[*yang.Error](err); ok {
		return yang.Errors{one}
	}
	return yang.Errors{{Message: err.Error()}}
}
