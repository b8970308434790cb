package openapi

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// use is the use of a schema. A read can return a part of the data (depth, fields, content), so
// no member is required. Written data have no state.
type use bool

const (
	toRead  use = false
	toWrite use = true
)

// schema returns a reference to the schema of an instance of a container or of a list's entry.
// It creates the schema at the first call.
func (b *builder) schema(n *yang.Node, u use) object {
	name := componentName(n)
	if u == toWrite && differs(n) {
		name += ".write"
	}
	if _, made := b.schemas[name]; !made {
		b.schemas[name] = nil // a node that contained itself would end here
		b.schemas[name] = b.structure(n, u)
	}
	return ref("schemas", name)
}

// differs reports whether the schema for writing n differs from the schema for reading it: fewer
// members can be written, or some are required.
func differs(n *yang.Node) bool {
	if !n.Config || n.Required() || len(n.Keys) > 0 {
		return true
	}
	return slices.ContainsFunc(n.Children, differs)
}

// componentName returns the path of a node, with dots.
func componentName(n *yang.Node) string {
	if n.Parent == nil {
		return n.Module.Name + "." + n.Name
	}
	return componentName(n.Parent) + "." + strings.ReplaceAll(member(n), ":", ".")
}

// member returns the name of n in the JSON object of its parent.
func member(n *yang.Node) string {
	if n.Parent == nil || n.Parent.Module != n.Module {
		return n.Module.Name + ":" + n.Name
	}
	return n.Name
}

func (b *builder) structure(n *yang.Node, u use) object {
	properties := object{}
	var required []string
	for _, child := range n.Children {
		if u == toWrite && !child.Config {
			continue
		}
		properties[member(child)] = b.instances(child, u)
		if u == toWrite && child.Required() || u == toWrite && child.IsKey() {
			required = append(required, member(child))
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false, "xml": xmlName(n)}
	describe(out, n, "")
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// instances returns the schema of all instances of n in its parent.
func (b *builder) instances(n *yang.Node, u use) object {
	var out object
	switch n.Kind {
	case yang.Container:
		out = b.schema(n, u)
	case yang.List:
		out = elements(n, b.schema(n, u), u)
	case yang.LeafList:
		out = elements(n, leaf(n), u)
	default:
		out = leaf(n)
	}
	if u == toRead && !n.Config && (n.Parent == nil || n.Parent.Config) {
		out["readOnly"] = true
	}
	return out
}

func elements(n *yang.Node, items object, u use) object {
	out := object{"type": "array", "items": items}
	least, most := n.Elements()
	if least > 0 && u == toWrite {
		out["minItems"] = least
	}
	if most > 0 {
		out["maxItems"] = most
	}
	return out
}

// leaf returns the schema of a leaf's value.
func leaf(n *yang.Node) object {
	t, _ := n.Type()
	out := valueSchema(t)
	out["xml"] = xmlName(n)
	describe(out, n, t.Want)
	return out
}

// formats has the formats of JSON Schema for well-known typedefs.
var formats = map[string]string{
	"uuid": "uuid", "ipv4-address": "ipv4", "ipv4-address-no-zone": "ipv4", "ipv6-address-no-zone": "ipv6",
}

func valueSchema(t yang.Type) object {
	switch {
	case len(t.Members) > 0:
		members := make([]object, len(t.Members))
		for i, member := range t.Members {
			members[i] = valueSchema(member)
		}
		return object{"anyOf": members}
	case t.JSON == "empty":
		return object{"type": "array", "items": object{"type": "null"}, "minItems": 1, "maxItems": 1}
	case t.JSON == "boolean":
		return object{"type": "boolean"}
	case t.Quoted:
		return object{"type": "string", "pattern": "^-?[0-9]+$"}
	case t.JSON == "integer":
		return bounded(object{"type": "integer"}, t, "minimum", "maximum")
	}
	return text(t)
}

func text(t yang.Type) object {
	out := bounded(object{"type": "string"}, t, "minLength", "maxLength")
	if len(t.Values) > 0 {
		out["enum"] = t.Values
	}
	if format := formats[t.Typedef]; format != "" {
		out["format"] = format
	}
	var all []object
	for _, pattern := range t.Patterns {
		if portable, ok := portablePattern(pattern); ok {
			all = append(all, object{"pattern": portable})
		}
	}
	if len(all) > 0 {
		out["allOf"] = all
	}
	return out
}

// portablePattern returns a pattern that validators in all languages can read. ok is false for a
// pattern with classes of Unicode; the description of the leaf has such a pattern.
func portablePattern(pattern string) (portable string, ok bool) {
	portable = strings.ReplaceAll(pattern, `\p{Nd}`, `[0-9]`)
	return portable, !strings.Contains(portable, `\p`) && !strings.Contains(portable, `\P`)
}

// bounded adds bounds to a schema. It leaves out the largest length of YANG, which means that
// there is no bound.
func bounded(out object, t yang.Type, least, most string) object {
	if t.Least != "" {
		out[least] = json.Number(t.Least)
	}
	if t.Most != "" && t.Most != "18446744073709551615" {
		out[most] = json.Number(t.Most)
	}
	return out
}

// describe adds the description of the node, and the form of its values.
func describe(out object, n *yang.Node, want string) {
	parts := strings.Fields(n.Description)
	if want != "" {
		if len(parts) > 0 && !strings.HasSuffix(parts[len(parts)-1], ".") {
			parts[len(parts)-1] += "."
		}
		parts = append(parts, "Its value is "+want+".")
	}
	if len(parts) > 0 {
		out["description"] = strings.Join(parts, " ")
	}
}

func xmlName(n *yang.Node) object { return object{"name": n.Name, "namespace": n.Module.Namespace} }
