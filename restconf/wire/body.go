package wire

import (
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Decode reads what a body has for a target: the children that are to be made in it, or the
// target itself. A target that is the whole datastore has its top containers.
func (d *Dialect) Decode(schema *yang.Schema, target tree.Target, children bool, m Media, body []byte) ([]*yang.Data, error) {
	if target.IsRoot() && !children {
		return d.decodeWhole(schema, m, body)
	}
	outermost, qualified := m.codec.outermost(body)
	asChildren := children
	if d.Draft {
		asChildren = bodyHasChildren(target, outermost, children)
	}
	at := target
	if !asChildren {
		if outermost != "" && outermost != at.Node().Name {
			return nil, wantsTarget(target)
		}
		at = at.Parent()
	}
	data, err := d.decodeAt(schema, at, m, body, qualified)
	if err != nil {
		return nil, d.Retag(err)
	}
	if !asChildren {
		if err := isTarget(target, data); err != nil {
			return nil, err
		}
	}
	switch {
	case asChildren && !children:
		return []*yang.Data{{Node: target.Node(), Children: data}}, nil
	case !asChildren && children:
		data = data[0].Children
	}
	if len(data) == 0 {
		return nil, Malformed("the body has nothing in it")
	}
	return data, nil
}

// decodeAt reads the children of at from a body, whose outermost name is qualified or not.
func (d *Dialect) decodeAt(schema *yang.Schema, at tree.Target, m Media, body []byte, qualified bool) ([]*yang.Data, error) {
	data, err := m.codec.decode(schema, body, at.Schema(), at.Path(), d.mode)
	switch {
	case err != nil:
		return nil, err
	case d.Draft:
		return data, refuseUnreachable(data, at.Path())
	case !qualified:
		return nil, malformedAt(at, "the outermost name in a body has to be \"module:name\"")
	}
	return data, nil
}

// bodyHasChildren reports which shape a draft-02 body has: the children of the target, or
// the target itself. The published examples use both with POST and with PUT. The name of
// the first member shows which it is. That only works for containers; an entry of a list
// is always named by its list.
func bodyHasChildren(target tree.Target, outermost string, children bool) bool {
	if target.IsRoot() || target.Node().Kind != yang.Container {
		return children
	}
	node := target.Node()
	isChild, isTarget := node.Child("", outermost) != nil, outermost == node.Name
	if isChild == isTarget {
		return children
	}
	return isChild
}

// isTarget checks that a body holds the one instance that the path names.
func isTarget(target tree.Target, data []*yang.Data) error {
	if len(data) != 1 || data[0].Node != target.Node() {
		return wantsTarget(target)
	}
	return target.CheckKeys(data[0])
}

// wantsTarget is the error of a body that holds anything but the target.
func wantsTarget(target tree.Target) error {
	node := target.Node()
	return malformedAt(target, "the body has to hold "+node.Module.Name+":"+node.Name+" and nothing else")
}

// refuseUnreachable finds entries that no path of draft-02 can name: an empty key has no
// place in a path. Data within an entry can be written with the entry.
func refuseUnreachable(data []*yang.Data, at string) error {
	for _, d := range data {
		if !tree.IsUnit(d.Node) {
			if err := refuseUnreachable(d.Children, d.Path(at)); err != nil {
				return err
			}
			continue
		}
		if i := slices.Index(d.Key(), ""); i >= 0 {
			return &yang.Error{
				Type: "protocol", Tag: "invalid-value", Path: d.Path(at),
				Message: "the key " + d.Node.Keys[i].Name + " is empty, and no path could name the entry: give it one",
			}
		}
	}
	return nil
}
