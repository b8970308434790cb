package datastore

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Unit is what one etcd key holds: an entry of an outermost keyed list of a top
// container, or what is left of the container without those entries. The
// container's own unit is also the mark that the container exists. A unit is
// immutable.
type Unit struct {
	Node *yang.Node // the list, or the top container
	Key  []string   // the entry's key values; nil for a container
	// Raw is the JSON object of the entry or container (RFC 7951).
	Raw         []byte
	ModRevision int64 // of its last change; in Batch.Delete that of its end
	// Damaged: what the datastore holds is not valid (Config.Valid), and Raw has the
	// entry's keys alone. A client can write or delete the entry.
	Damaged bool

	id string // the etcd key without configPrefix
}

// bare is the unit without anything but its keys.
func (u *Unit) bare() []byte {
	object := map[string]string{}
	for i, value := range u.Key {
		object[u.Node.Keys[i].Name] = value
	}
	raw, _ := json.Marshal(object) // strings always encode
	return raw
}

// UnitNode is the node whose instances hold the instances of n: the outermost keyed list
// on the way to n (n included) that has only containers above it, or else the
// top container.
func UnitNode(n *yang.Node) *yang.Node {
	if n.Parent == nil {
		return n
	}
	unit := UnitNode(n.Parent)
	if unit.Parent == nil && n.Kind == yang.List && len(n.Keys) > 0 && onlyContainers(n.Parent) {
		return n
	}
	return unit
}

func onlyContainers(n *yang.Node) bool {
	for ; n != nil; n = n.Parent {
		if n.Kind != yang.Container {
			return false
		}
	}
	return true
}

// UnitLists are the lists at and below container n whose entries are units.
func UnitLists(n *yang.Node) []*yang.Node {
	var lists []*yang.Node
	for _, child := range n.Children {
		switch {
		case child.Kind == yang.Container:
			lists = append(lists, UnitLists(child)...)
		case UnitNode(child) == child:
			lists = append(lists, child)
		}
	}
	return lists
}

// layout knows the names of all units of a schema.
type layout struct {
	paths map[*yang.Node]string // "pod:coe", "pod:coe/pods"
	nodes map[string]*yang.Node
}

func newLayout(s *yang.Schema) *layout {
	l := &layout{paths: map[*yang.Node]string{}, nodes: map[string]*yang.Node{}}
	for _, m := range s.Modules {
		for _, top := range m.Top {
			if top.Kind == yang.Container && top.Config {
				l.add(top)
			}
		}
	}
	return l
}

func (l *layout) add(top *yang.Node) {
	for _, n := range append(UnitLists(top), top) {
		path := schemaPath(n)
		l.paths[n], l.nodes[path] = path, n
	}
}

func schemaPath(n *yang.Node) string {
	switch {
	case n.Parent == nil:
		return n.Module.Name + ":" + n.Name
	case n.Parent.Module != n.Module:
		return schemaPath(n.Parent) + "/" + n.Module.Name + ":" + n.Name
	}
	return schemaPath(n.Parent) + "/" + n.Name
}

// id names the unit of node and key. Key values are percent-encoded, so neither
// "/" nor "," nor a further "=" has a meaning in them.
func (l *layout) id(node *yang.Node, key []string) string {
	path := l.paths[node]
	if len(key) == 0 {
		return path
	}
	var b strings.Builder
	b.WriteString(path)
	for i, value := range key {
		b.WriteByte("=,"[min(i, 1)])
		b.WriteString(url.PathEscape(value))
	}
	return b.String()
}

// parse is the inverse of id; ok is false for what this schema does not know.
func (l *layout) parse(id string) (node *yang.Node, key []string, ok bool) {
	path, values, entry := strings.Cut(id, "=")
	node = l.nodes[path]
	if node == nil || entry != (node.Kind == yang.List) {
		return nil, nil, false
	}
	if !entry {
		return node, nil, true
	}
	for value := range strings.SplitSeq(values, ",") {
		text, err := url.PathUnescape(value)
		if err != nil {
			return nil, nil, false
		}
		key = append(key, text)
	}
	return node, key, len(key) == len(node.Keys)
}
