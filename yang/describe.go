package yang

import (
	"maps"
	"slices"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Type describes the values of a leaf, for documents about the schema.
type Type struct {
	// JSON is what RFC 7951 writes values as: "string", "integer", "boolean" or "empty".
	JSON string
	// Want says in words what a value looks like: "an IPv4 address".
	Want string
	// Typedef is the well-known typedef whose values have a canonical form here, such
	// as "ipv4-address"; empty for all others.
	Typedef string
	// Quoted is set for an integer of 64 bits, which JSON has as a string.
	Quoted bool
	// Least and Most bound an integer's value or, where JSON is "string", the number of
	// characters; empty where there is no such bound.
	Least, Most string
	// Patterns all match a value as a whole. They are written as Go's and ECMAScript's
	// expressions are.
	Patterns []string
	// Values are all that there are, of an enumeration or an identityref.
	Values []string
	// Members are the types of a union: a value is of one of them.
	Members []Type
}

// Type describes the values of a Leaf or LeafList; ok is false for other nodes.
func (n *Node) Type() (t Type, ok bool) {
	if n.typ == nil {
		return Type{}, false
	}
	return n.typ.describe(), true
}

// Required tells whether something is missing where n is absent and what holds n is
// there, whatever else is.
func (n *Node) Required() bool { return n.demanding && len(n.cases) == 0 && len(n.when) == 0 }

// Elements bounds how many entries a List has, or values a LeafList; most is 0 where
// nothing does.
func (n *Node) Elements() (least, most uint64) {
	if n.atMost == unbounded {
		return n.atLeast, 0
	}
	return n.atLeast, n.atMost
}

// unbounded is goyang's max-elements where the module has none.
const unbounded = 1<<64 - 1

// jsonForms name the forms for Type.JSON.
var jsonForms = map[form]string{asString: "string", asNumber: "integer", asBool: "boolean", asEmpty: "empty"}

func (t *valueType) describe() Type {
	out := Type{JSON: jsonForms[t.written], Want: t.want, Typedef: t.typedef}
	switch t.kind {
	case goyang.Yunion:
		for _, member := range t.members {
			out.Members = append(out.Members, member.describe())
		}
		return out
	case goyang.Yenum:
		out.Values = slices.Sorted(maps.Keys(t.enums))
	case goyang.Yidentityref:
		out.Values = slices.Sorted(maps.Keys(t.identities))
	case goyang.Yint64, goyang.Yuint64:
		out.Quoted = true
	}
	if n := len(t.bounds); n > 0 {
		out.Least, out.Most = t.bounds[0].Min.String(), t.bounds[n-1].Max.String()
	}
	for _, pattern := range t.patterns {
		out.Patterns = append(out.Patterns, pattern.String())
	}
	return out
}
