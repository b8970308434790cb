package yang

import (
	"fmt"
	"regexp"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// valueType is the type of a leaf, compiled for checking values.
type valueType struct {
	kind goyang.TypeKind
	// want describes a valid value in words: "an IPv4 address".
	want string
	// written is the form of values in JSON: asString, asNumber, asBool or asEmpty.
	written form
	// absent reports whether the lenient mode accepts "" as absent.
	absent bool

	bounds   goyang.YangRange // of an integer's value or a string's length
	patterns []*regexp.Regexp
	known    func(string) (string, bool) // replaces patterns of a well-known typedef
	typedef  string                      // that typedef
	enums    map[string]bool
	// identities holds the names of the identities that derive from the base: "module:name",
	// and "name" if it is of the leaf's module; see loose.
	identities map[string]string
	// loose holds the names without module of other identities, for the lenient mode.
	loose map[string]string
	// spaces holds the modules of identities, by name.
	spaces  map[string]namespace
	members []*valueType // of a union
	target  *Node        // of a leafref
	// optional reports whether a leafref has "require-instance false".
	optional bool
}

// namespace is the namespace of a module, with the module's own prefix.
type namespace struct{ prefix, uri string }

// compileType compiles the type of the leaf e, or a member of its union.
func (l *loader) compileType(e *goyang.Entry, t *goyang.YangType) (*valueType, error) {
	out := &valueType{kind: t.Kind, written: asString}
	var err error
	switch t.Kind {
	case goyang.Ystring:
		err = out.compileString(t)
	case goyang.Yint8, goyang.Yint16, goyang.Yint32, goyang.Yuint8, goyang.Yuint16, goyang.Yuint32:
		out.written = asNumber
		out.bounds, out.want = t.Range, "an integer in "+ranges(t.Range)
	case goyang.Yint64, goyang.Yuint64:
		out.bounds, out.want = t.Range, "an integer in "+ranges(t.Range)+", quoted"
	case goyang.Ybool:
		out.written, out.want = asBool, "true or false"
	case goyang.Yempty:
		out.written, out.want = asEmpty, "[null]"
	case goyang.Yenum:
		out.compileEnum(t)
	case goyang.Yidentityref:
		out.compileIdentities(l.nodes[e].Module.Name, t.IdentityBase)
	case goyang.Yleafref:
		err = l.compileLeafref(out, e, t)
	case goyang.Yunion:
		err = l.compileUnion(out, e, t)
	default:
		err = fmt.Errorf("type %s is not supported", t.Kind)
	}
	return out, err
}

func (t *valueType) compileString(from *goyang.YangType) error {
	t.bounds, t.want = from.Length, "a "+from.Name
	patterns := from.Pattern
	if k, ok := knownTypes[from.Name]; ok && len(patterns) >= k.patterns {
		t.known, t.typedef, t.want, t.absent = k.canonical, from.Name, k.want, k.absent
		patterns = patterns[k.patterns:]
	}
	if len(t.bounds) > 0 {
		t.want += " of " + ranges(t.bounds) + " characters"
	}
	for _, pattern := range patterns {
		compiled, err := compilePattern(pattern)
		if err != nil {
			return err
		}
		t.patterns = append(t.patterns, compiled)
		t.want += " that matches " + pattern
	}
	return nil
}

func (t *valueType) compileEnum(from *goyang.YangType) {
	t.enums = map[string]bool{}
	values := from.Enum.Values()
	shown := make([]string, 0, len(values))
	for _, value := range values {
		name := from.Enum.Name(value)
		t.enums[name] = true
		shown = append(shown, name)
	}
	t.want = alternatives(shown)
}

func (t *valueType) compileIdentities(own string, base *goyang.Identity) {
	t.identities, t.loose, t.spaces = map[string]string{}, map[string]string{}, map[string]namespace{}
	shown := make([]string, 0, len(base.Values))
	for _, identity := range base.Values {
		root := goyang.RootNode(identity)
		module := root.Name
		t.spaces[module] = namespace{root.Prefix.Name, root.Namespace.Name}
		canonical := module + ":" + identity.Name
		shown = append(shown, canonical)
		t.identities[canonical] = canonical
		if module == own {
			t.identities[identity.Name] = canonical
		}
		if _, taken := t.loose[identity.Name]; taken {
			canonical = "" // ambiguous
		}
		t.loose[identity.Name] = canonical
	}
	t.want = alternatives(shown)
}

func (l *loader) compileLeafref(t *valueType, e *goyang.Entry, from *goyang.YangType) error {
	found := e.Find(from.Path)
	target := l.nodes[found]
	if target == nil || target.Kind != Leaf && target.Kind != LeafList {
		return fmt.Errorf("leafref %s does not name a leaf", from.Path)
	}
	compiled, err := l.compileType(found, found.Type)
	if err != nil {
		return err
	}
	*t = *compiled
	t.target, t.optional = target, from.OptionalInstance
	return nil
}

func (l *loader) compileUnion(t *valueType, e *goyang.Entry, from *goyang.YangType) error {
	var wants []string
	t.absent = true
	for _, part := range from.Type {
		compiled, err := l.compileType(e, part)
		if err != nil {
			return err
		}
		if compiled.written != asString || compiled.target != nil || compiled.kind == goyang.Yidentityref {
			return fmt.Errorf("union with a member %s is not supported", part.Name)
		}
		t.members = append(t.members, compiled)
		t.absent = t.absent && compiled.absent
		wants = append(wants, compiled.want)
	}
	t.want = alternatives(wants)
	if want, ok := unionWants[from.Name]; ok {
		t.want = want
	}
	return nil
}

// unionWants holds shorter descriptions of well-known unions.
var unionWants = map[string]string{
	"ip-address": "an IPv4 or IPv6 address",
	"ip-prefix":  "an IPv4 or IPv6 prefix",
}

// ranges returns bounds in words: "0..65535".
func ranges(bounds goyang.YangRange) string {
	parts := make([]string, len(bounds))
	for i, r := range bounds {
		parts[i] = r.String()
	}
	return strings.Join(parts, " or ")
}

// alternatives joins valid values with "or".
func alternatives(wants []string) string {
	last := len(wants) - 1
	if last < 1 {
		return strings.Join(wants, "")
	}
	return strings.Join(wants[:last], ", ") + " or " + wants[last]
}
