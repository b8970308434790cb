package restconf

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

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
		return (&yang.Data{Node: s.node}).Path(at)
	}
	return s.data().Path(at)
}

// parse reads the part of a path below a tree, still percent-encoded. Empty
// segments are nothing.
func (d *dialect) parse(schema *yang.Schema, rest string) (target, error) {
	segments := strings.FieldsFunc(rest, func(c rune) bool { return c == '/' })
	var t target
	for len(segments) > 0 {
		name, keys, used, err := d.split(segments, t)
		if err != nil {
			return nil, err
		}
		node, err := d.child(schema, t, name)
		if err != nil {
			return nil, err
		}
		if d.draft {
			keys, used, err = draftKeys(node, segments[1:], t)
			if err != nil {
				return nil, err
			}
		}
		segments = segments[used:]
		s := step{node: node}
		if keys != nil {
			if s.keys, err = d.keys(node, keys, t); err != nil {
				return nil, err
			}
		}
		if s.isList() && len(segments) > 0 {
			return nil, badPath(t, "the list "+node.Name+" needs its keys before what follows")
		}
		t = append(t, s)
	}
	return t, nil
}

// split takes the first segment apart: in RFC 8040 keys follow the name.
func (d *dialect) split(segments []string, t target) (name string, keys []string, used int, err error) {
	name = segments[0]
	if !d.draft {
		before, values, ok := strings.Cut(name, "=")
		if ok {
			name, keys = before, strings.Split(values, ",")
		}
	}
	if name, err = d.unescape(name); err != nil {
		return "", nil, 0, badPath(t, "bad percent-encoding in "+segments[0])
	}
	return name, keys, 1, nil
}

// draftKeys takes a list's keys from the segments that follow its name.
func draftKeys(node *yang.Node, rest []string, t target) ([]string, int, error) {
	n := 0
	switch node.Kind {
	case yang.List:
		n = len(node.Keys)
	case yang.LeafList:
		n = 1
	}
	if n > len(rest) || (node.Kind == yang.List && n == 0) {
		return nil, 0, badPath(t, "the list "+node.Name+" can only be reached entry by entry, by all its keys")
	}
	if n == 0 {
		return nil, 1, nil
	}
	return rest[:n], 1 + n, nil
}

// child finds the node that name means below t.
func (d *dialect) child(schema *yang.Schema, t target, name string) (*yang.Node, error) {
	prefix, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		prefix, local = "", name
	}
	var module *yang.Module
	if prefixed {
		if module = schema.Module(prefix); module == nil {
			return nil, &yang.Error{
				Type: "protocol", Tag: "unknown-element", Path: t.path(),
				Message: "there is no module named " + prefix,
			}
		}
	}
	var node *yang.Node
	switch {
	case t.isRoot() && !prefixed:
		return nil, badPath(t, `the first name in a path has to be "module:name"`)
	case t.isRoot():
		node = module.Child(local)
	case t.last().isList() || t.node().Kind == yang.Leaf || t.node().Kind == yang.LeafList:
		return nil, badPath(t, t.node().Name+" has no children")
	case prefixed || d.draft:
		node = t.node().Child(prefix, local)
	default:
		node = t.node().Child(t.node().Module.Name, local)
	}
	if node == nil {
		return nil, badPath(t, "there is no node "+name+" here")
	}
	return node, nil
}

// keys decodes and checks the keys of a list entry, or the value of a leaf-list's.
func (d *dialect) keys(node *yang.Node, escaped []string, t target) ([]string, error) {
	leaves := node.Keys
	if node.Kind == yang.LeafList {
		leaves = []*yang.Node{node}
	}
	if len(leaves) == 0 || len(escaped) != len(leaves) {
		return nil, badPath(t, node.Name+" does not take this number of keys")
	}
	keys := make([]string, len(leaves))
	for i, leaf := range leaves {
		text, err := d.unescape(escaped[i])
		if err != nil {
			return nil, badPath(t, "bad percent-encoding in "+escaped[i])
		}
		if keys[i], err = leaf.Canonical(text); err != nil {
			return nil, d.bodyError(err, t.path())
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
			switch {
			case d.draft:
				b.WriteByte('/')
			default:
				b.WriteByte("=,"[min(j, 1)])
			}
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
	clean := "/" + strings.Join(segments, "/")
	u := *r.URL
	u.RawPath = clean
	u.Path, _ = url.PathUnescape(clean) // it came from a URL that was parsed
	shallow := *r
	shallow.URL = &u
	return &shallow
}
