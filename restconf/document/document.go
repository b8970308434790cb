// Package document reads files of YAML or JSON whose data are instances of the YANG modules.
// It splits them into entries, which can be written one by one. It keeps the line of every
// value, so that an error of the schema or of a server can name the line in the file.
//
// It knows neither HTTP nor what an entry means.
package document

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/coe-bridge/coe-bridge/yang"
)

// File is a file that was read, and its name in errors.
type File struct {
	Name string
	Text []byte
}

// Error is what is wrong at a line of a file.
type Error struct {
	File string
	Line int
	Err  error
}

// Error is "file:line: what is wrong".
func (e *Error) Error() string { return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Err.Error() }

// Unwrap is what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Reader reads files.
type Reader struct {
	schema *yang.Schema
	tops   []*yang.Node
	// seen is where each entry is, by target.
	seen map[string]*Entry
}

// NewReader makes a reader of documents that are instances of these top containers, or
// of what is in them.
func NewReader(schema *yang.Schema, tops []*yang.Node) *Reader {
	return &Reader{schema: schema, tops: tops, seen: map[string]*Entry{}}
}

// Read takes a file apart into entries, in their order. An entry may be there once in all
// files that are read. It fails with all that it finds wrong with the form of the file;
// whether an entry is valid is its own matter (Entry.Problems).
//
// A document is a JSON object, or a YAML mapping, with top containers ({"pod:coe": …}) or
// with containers or lists in them ({"pod:pods": […]}), with the module's name where a name
// alone could be several things. A file may have several: JSON one after the other, YAML with
// lines of "---" between them.
func (r *Reader) Read(f File) ([]*Entry, error) {
	documents, err := parse(f)
	if err != nil {
		return nil, err
	}
	t := &taker{reader: r, file: f.Name}
	for _, d := range documents {
		t.document(d)
	}
	return t.entries, errors.Join(t.wrong...)
}

// taker takes one file apart.
type taker struct {
	reader  *Reader
	file    string
	entries []*Entry
	wrong   []error
}

func (t *taker) report(line int, format string, args ...any) {
	t.wrong = append(t.wrong, &Error{t.file, line, fmt.Errorf(format, args...)})
}

// document takes one document; an empty one has nothing.
func (t *taker) document(d *Value) {
	if d.kind == null {
		return
	}
	if d.kind != object {
		t.report(d.Line, "want an object with data, as \"pod:pods: […]\"")
		return
	}
	if d.member("apiVersion") != nil && d.member("kind") != nil {
		t.report(d.Line, "it is a manifest for Kubernetes, not data for a bridge: kubectl apply it, and a bridge that watches the cluster (serve --kubeconfig) follows; coe-bridge plan -f shows the result")
		return
	}
	for _, m := range d.members {
		nodes := t.reader.named(m.Name)
		switch {
		case len(nodes) == 0:
			t.report(m.Line, "%q is nothing that is written to a bridge: want %s, or what is in one of them", m.Name, t.reader.names())
		case len(nodes) > 1:
			t.report(m.Line, "%q can be %s: write it with its module", m.Name, alternatives(nodes))
		case nodes[0].Parent == nil:
			t.container(nodes[0], nil, m)
		default:
			parent := nodes[0].Parent
			t.container(parent, ancestors(parent), Member{Line: m.Line, Value: &Value{Line: m.Line, kind: object, members: []Member{m}}})
		}
	}
}

// container takes an instance of a container, which lies in those above: each entry in it
// that is written by itself and, as one more, what is in it beside them.
func (t *taker) container(node *yang.Node, above []*yang.Node, m Member) {
	if m.Value.kind == null {
		return
	}
	if m.Value.kind != object {
		t.report(m.Line, "%s: want an object", node.Name)
		return
	}
	at := slices.Concat(above, []*yang.Node{node})
	own := &Value{Line: m.Value.Line, kind: object}
	for _, child := range m.Value.members {
		n := childOf(node, child.Name)
		switch {
		case n == nil || n.Kind != yang.Container && !isEntries(n):
			own.members = append(own.members, child)
		case n.Kind == yang.Container:
			t.container(n, at, child)
		default:
			t.list(n, at, child)
		}
	}
	if len(own.members) > 0 {
		t.add(&Entry{File: t.file, Line: m.Line, node: node, above: above, value: own})
	}
}

// isEntries reports whether a child of a container is a list whose entries have keys.
func isEntries(n *yang.Node) bool { return n.Kind == yang.List && len(n.Keys) > 0 }

func (t *taker) list(node *yang.Node, above []*yang.Node, m Member) {
	entries := m.Value.elements
	switch m.Value.kind {
	case null:
		return
	case object: // one, as OpenDaylight takes it
		entries = []*Value{m.Value}
	case array:
	default:
		t.report(m.Line, "%s: want a list of entries", m.Name)
		return
	}
	for _, value := range entries {
		if value.kind != object {
			t.report(value.Line, "%s: want an entry, an object with %s", m.Name, keyNames(node))
			continue
		}
		key, err := keyOf(node, value)
		if err != nil {
			t.report(value.Line, "%w", err)
			continue
		}
		t.add(&Entry{File: t.file, Line: value.Line, Key: key, node: node, above: above, value: value})
	}
}

// add takes an entry that was not there yet.
func (t *taker) add(e *Entry) {
	if other := t.reader.seen[e.Target()]; other != nil {
		t.report(e.Line, "%s is there already, at %s:%d", e.Name(), other.File, other.Line)
		return
	}
	t.reader.seen[e.Target()] = e
	e.read(t.reader.schema)
	t.entries = append(t.entries, e)
}
