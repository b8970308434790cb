package wire

import (
	"bytes"
	"slices"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// member is the quoted name of a top-level member and its colon.
func (d *Dialect) member(n *yang.Node) string {
	if d.style == yang.Draft02 {
		return `"` + n.Name + `":`
	}
	return `"` + n.Module.Name + `:` + n.Name + `":`
}

// JoinUnits is {"list":[entry]} of an entry, {"container":{…,"list":[entry,…]}} of a top
// container, or nil for no units.
func (d *Dialect) JoinUnits(at tree.Target, units []*datastore.Unit) []byte {
	switch {
	case len(units) == 0:
		return nil
	case len(at) > 1:
		return d.oneUnit(units[0])
	}
	return d.allUnits(at.Top(), units)
}

func (d *Dialect) oneUnit(u *datastore.Unit) []byte {
	name := d.member(u.Node)
	body := make([]byte, 0, len(name)+len(u.Raw)+4)
	body = append(append(body, '{'), name...)
	body = append(append(body, '['), u.Raw...)
	return append(body, ']', '}')
}

func (d *Dialect) allUnits(top *yang.Node, units []*datastore.Unit) []byte {
	var buf bytes.Buffer
	buf.Grow(sizeOf(units))
	buf.WriteString("{" + d.member(top) + "{")
	if own := units[0]; own.Node == top {
		buf.Write(own.Raw[1 : len(own.Raw)-1])
		units = units[1:]
	}
	var list *yang.Node
	for _, u := range units {
		switch {
		case u.Node == list:
			buf.WriteByte(',')
		case list != nil:
			buf.WriteString("],")
		case buf.Bytes()[buf.Len()-1] != '{':
			buf.WriteByte(',')
		}
		if u.Node != list {
			list = u.Node
			buf.WriteString(memberBelow(list) + "[")
		}
		buf.Write(u.Raw)
	}
	if list != nil {
		buf.WriteByte(']')
	}
	buf.WriteString("}}")
	return buf.Bytes()
}

// sizeOf estimates the bytes of units in an answer.
func sizeOf(units []*datastore.Unit) int {
	n := 256
	for _, u := range units {
		n += len(u.Raw) + 1
	}
	return n
}

// memberBelow is the quoted name of a member of n's parent, and its colon.
func memberBelow(n *yang.Node) string {
	if n.Parent.Module == n.Module {
		return `"` + n.Name + `":`
	}
	return `"` + n.Module.Name + ":" + n.Name + `":`
}

// AsTree writes an entry, or a container, with its top container around it.
func AsTree(at tree.Target, raw []byte) []byte {
	var buf bytes.Buffer
	ends := make([]byte, 0, 2*len(at)+1)
	buf.WriteByte('{')
	ends = append(ends, '}')
	for i, s := range at {
		if i > 0 {
			buf.WriteByte('{')
			ends = append(ends, '}')
			buf.WriteString(memberBelow(s.Node))
		} else {
			buf.WriteString(`"` + TopName(s.Node) + `":`)
		}
		if s.Node.Kind == yang.List {
			buf.WriteByte('[')
			ends = append(ends, ']')
		}
	}
	buf.Write(raw)
	slices.Reverse(ends)
	buf.Write(ends)
	return buf.Bytes()
}

// TopName is a top-level node's "module:name".
func TopName(top *yang.Node) string { return top.Module.Name + ":" + top.Name }
