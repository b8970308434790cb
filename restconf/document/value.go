package document

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Value is a value as it was written, and its line.
type Value struct {
	Line     int
	kind     kind
	text     string // of a scalar: a string's content, else JSON
	members  []Member
	elements []*Value
}

// Member is a member of an object.
type Member struct {
	Name  string
	Line  int
	Value *Value
}

type kind uint8

const (
	null kind = iota
	text
	literal // a number or a boolean
	object
	array
)

func (v *Value) isScalar() bool { return v.kind == text || v.kind == literal }

// member is the member of exactly that name, or nil.
func (v *Value) member(name string) *Member {
	for i := range v.members {
		if v.members[i].Name == name {
			return &v.members[i]
		}
	}
	return nil
}

// memberOf is the member that is an instance of a node, or nil.
func (v *Value) memberOf(n *yang.Node) *Member {
	for i := range v.members {
		if means(v.members[i].Name, n) {
			return &v.members[i]
		}
	}
	return nil
}

// child is the member that a step of a path names in an instance of n, or nil.
func (v *Value) child(n *yang.Node, name string) *Member {
	if n != nil {
		if child := childOf(n, name); child != nil {
			return v.memberOf(child)
		}
	}
	return v.member(name)
}

// add adds a member, of which there may be one of a name.
func (v *Value) add(m Member) error {
	if len(v.members) == maxMembers {
		return fmt.Errorf("an object has more than %d members: no data of a bridge has", maxMembers)
	}
	if other := v.member(m.Name); other != nil {
		return fmt.Errorf("%q is there twice, first at line %d: want it once", m.Name, other.Line)
	}
	v.members = append(v.members, m)
	return nil
}

// write writes JSON.
func (v *Value) write(b *bytes.Buffer) {
	switch v.kind {
	case null:
		b.WriteString("null")
	case text:
		quoted, _ := json.Marshal(v.text) // a string always encodes
		b.Write(quoted)
	case literal:
		b.WriteString(v.text)
	case object:
		b.WriteByte('{')
		for i, m := range v.members {
			if i > 0 {
				b.WriteByte(',')
			}
			name := Value{kind: text, text: m.Name}
			name.write(b)
			b.WriteByte(':')
			m.Value.write(b)
		}
		b.WriteByte('}')
	case array:
		b.WriteByte('[')
		for i, element := range v.elements {
			if i > 0 {
				b.WriteByte(',')
			}
			element.write(b)
		}
		b.WriteByte(']')
	}
}
