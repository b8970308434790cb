package yang

import (
	"maps"
	"slices"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Type describes the values of a leaf, for documents about the schema.
type Type struct {
	// JSON is the JSON type of the values (RFC 7951): "string", "integer", "boolean" or "empty".
	JSON string
	// Want describes a valid value in words: "an IPv4 address".
	Want string
	// Typedef is the well-known typedef of the values, such as "ipv4-address", if this package
	// has a canonical form for it; else empty.
	Typedef string
	// Quoted reports whether the values are 64-bit integers, which are strings in JSON.
	Quoted bool
	// Least and Most are the bounds of an integer's value or, if JSON is "string", of the
	// number of characters; empty if there is no bound.
	Least, Most string
	// Patterns must all match the whole value. Their syntax is valid in Go and in ECMAScript.
	Patterns []string
	// Values lists all values of an enumeration or an identityref.
	Values []string
	// Members are the types of a union: a value has one of them.
	Members []Type
}

// Type describes the values of a Leaf or LeafList; ok is false for other nodes.
func (n *Node) Type() (t Type, ok bool) {
	if n.typ == nil {
		return Type{}, false
	}
	return n.typ.describe(), true
}

// Required reports whether an absent n makes the data invalid, if n's parent is present and
// for any other data.
func (n *Node) Required() bool { return n.demanding && len(n.cases) == 0 && len(n.when) == 0 }

// Elements returns the minimum and maximum number of entries of a List, or of values of a
// LeafList; most is 0 if there is no maximum.
func (n *Node) Elements() (least, most uint64) {
	if n.atMost == unbounded {
		return n.atLeast, 0
	}
	return n.atLeast, n.atMost
}

// unbounded is goyang's max-elements if the module has none.
const unbounded = 1<<64 - 1

// jsonForms holds the values of Type.JSON.
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
