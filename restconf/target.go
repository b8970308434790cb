package restconf

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// target is the resource that a path names. Without a step it is the datastore.
type target []step

// step names an instance below the one before: a container, a leaf, an entry of a
// list or leaf-list, or (without keys) a whole list.
type step struct {
	node *yang.Node
	keys []string // canonical; a leaf-list entry's key is its value
}

func (t target) isRoot() bool     { return len(t) == 0 }
func (t target) last() step       { return t[len(t)-1] }
func (t target) node() *yang.Node { return t.last().node }
func (t target) top() *yang.Node  { return t[0].node }

// parent is what t is a child of.
func (t target) parent() target { return t[:len(t)-1] }

// schema is t's node, nil for the datastore.
func (t target) schema() *yang.Node {
	if t.isRoot() {
		return nil
	}
	return t.node()
}

// unit is the index of the step that names a unit of a list (datastore.Unit) in
// which t lies, or -1.
func (t target) unit() int {
	if t.isRoot() {
		return -1
	}
	unit := datastore.UnitNode(t.node())
	for i, s := range t {
		if s.node == unit && s.node.Kind == yang.List && s.keys != nil {
			return i
		}
	}
	return -1
}

// isList tells whether s is a list or leaf-list as a whole.
func (s step) isList() bool {
	return s.keys == nil && (s.node.Kind == yang.List || s.node.Kind == yang.LeafList)
}

// data is an instance that s names, without content but for the keys.
func (s step) data() *yang.Data {
	d := &yang.Data{Node: s.node}
	if s.node.Kind == yang.LeafList {
		d.Value = s.keys[0]
		return d
	}
	for i, key := range s.keys {
		d.Children = append(d.Children, &yang.Data{Node: s.node.Keys[i], Value: key})
	}
	return d
}

// matches tells whether d is what s names.
func (s step) matches(d *yang.Data) bool {
	switch {
	case d.Node != s.node:
		return false
	case s.keys == nil:
		return true
	case d.Node.Kind == yang.LeafList:
		return d.Value == s.keys[0]
	}
	return slices.Equal(d.Key(), s.keys)
}

// stepOf names d among its siblings.
func stepOf(d *yang.Data) step {
	switch {
	case d.Node.Kind == yang.LeafList:
		return step{d.Node, []string{d.Value}}
	case d.Node.Kind == yang.List && len(d.Node.Keys) > 0:
		return step{d.Node, d.Key()}
	}
	return step{node: d.Node}
}

// path is t as an instance-identifier, for error-path.
func (t target) path() string {
	at := ""
	for _, s := range t {
		at = s.path(at)
	}
	return at
}

func (s step) path(at string) string {
	if s.isList() {
		return s.node.Path(at)
	}
	return s.data().Path(at)
}

// parse reads the part of a path below a tree, still percent-encoded. Empty
// segments are nothing.
func (d *dialect) parse(schema *yang.Schema, rest string) (target, error) {
	return d.parseBelow(schema, nil, rest)
}

// parseBelow is parse from what base names on.
func (d *dialect) parseBelow(schema *yang.Schema, base target, rest string) (target, error) {
	segments := strings.FieldsFunc(rest, func(c rune) bool { return c == '/' })
	t := slices.Clone(base)
	for len(segments) > 0 {
		if !t.isRoot() && t.last().isList() {
			return nil, badPath(t, "the list "+t.node().Name+" needs its keys before what follows")
		}
		s, used, err := d.step(schema, t.schema(), segments)
		if err != nil {
			return nil, withPath(err, t.path())
		}
		t = append(t, s)
		segments = segments[used:]
	}
	return t, nil
}

// step reads the first step below parent, and tells how many segments it takes.
func (d *dialect) step(schema *yang.Schema, parent *yang.Node, segments []string) (step, int, error) {
	escaped, values, keyed := segments[0], "", false
	if !d.draft {
		escaped, values, keyed = strings.Cut(escaped, "=")
	}
	name, err := d.unescape(escaped)
	if err != nil {
		return step{}, 0, badPath(nil, "bad percent-encoding in "+strconv.Quote(escaped))
	}
	node, err := d.child(schema, parent, name)
	if err != nil {
		return step{}, 0, err
	}
	var keys []string
	switch {
	case d.draft:
		if keys, err = draftKeys(node, segments[1:]); err != nil {
			return step{}, 0, err
		}
	case keyed:
		keys = strings.Split(values, ",")
	}
	used := 1
	if d.draft {
		used += len(keys)
	}
	keys, err = d.keys(node, keys)
	return step{node, keys}, used, err
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
		return nil, badPath(nil, "the list "+node.Name+" can only be reached entry by entry, by all its keys")
	}
	return rest[:n], nil
}

// child finds the node that name means below parent; nil is the datastore.
func (d *dialect) child(schema *yang.Schema, parent *yang.Node, name string) (*yang.Node, error) {
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
		return nil, badPath(nil, `the first name has to be "module:name"`)
	case parent == nil:
		node = module.Child(local)
	case prefixed || d.draft:
		node = parent.Child(prefix, local)
	default:
		node = parent.Child(parent.Module.Name, local)
	}
	if node == nil {
		return nil, badPath(nil, "there is no node "+strconv.Quote(name)+" here")
	}
	return node, nil
}

// keys decodes and checks the keys of a list entry, or the value of a leaf-list's.
func (d *dialect) keys(node *yang.Node, escaped []string) ([]string, error) {
	if len(escaped) == 0 {
		return nil, nil
	}
	leaves := node.Keys
	if node.Kind == yang.LeafList {
		leaves = []*yang.Node{node}
	}
	if len(escaped) != len(leaves) {
		return nil, badPath(nil, node.Name+" does not have this number of keys")
	}
	keys := make([]string, len(leaves))
	for i, leaf := range leaves {
		text, err := d.unescape(escaped[i])
		if err != nil {
			return nil, badPath(nil, "bad percent-encoding in "+strconv.Quote(escaped[i]))
		}
		if keys[i], err = leaf.Canonical(text); err != nil {
			return nil, d.retag(err)
		}
	}
	return keys, nil
}

// url writes t as a path below a tree's prefix.
func (d *dialect) url(t target) string {
	var b strings.Builder
	for i, s := range t {
		b.WriteByte('/')
		if i == 0 || s.node.Module != t[i-1].node.Module {
			b.WriteString(s.node.Module.Name + ":")
		}
		b.WriteString(s.node.Name)
		for j, key := range s.keys {
			b.WriteByte(d.keyMarks[min(j, 1)])
			b.WriteString(strings.ReplaceAll(url.QueryEscape(key), "+", "%20"))
		}
	}
	return b.String()
}

// withoutEmptySegments is r with runs of slashes in its path made one, so that it
// finds its route.
func withoutEmptySegments(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	if !strings.Contains(path, "//") {
		return r
	}
	segments := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	return withEscapedPath(r, "/"+strings.Join(segments, "/"))
}

// withPlainDatastore is r with the name of its datastore as its route has it: a colon
// may be escaped in a path.
func withPlainDatastore(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	rest, ok := strings.CutPrefix(path, datastoresPrefix)
	if !ok {
		return r
	}
	name, _, _ := strings.Cut(rest, "/")
	plain := strings.NewReplacer("%3A", ":", "%3a", ":").Replace(name)
	if plain == name {
		return r
	}
	return withEscapedPath(r, datastoresPrefix+plain+rest[len(name):])
}

// withEscapedPath is r with another path, which is made of its own.
func withEscapedPath(r *http.Request, path string) *http.Request {
	u := *r.URL
	u.RawPath = path
	u.Path, _ = url.PathUnescape(path) // it came from a URL that was parsed
	shallow := *r
	shallow.URL = &u
	return &shallow
}
