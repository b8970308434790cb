package wire

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// identifierParser reads an instance-identifier (RFC 7950 section 9.13) of JSON or XML:
//
//	/pod:coe/pod:pods[pod:uid='…']
type identifierParser struct {
	schema *yang.Schema
	spaces map[string]string // namespaces by prefix; other prefixes are modules' names
	rest   string
}

// ParseIdentifier reads the path of one instance.
func ParseIdentifier(schema *yang.Schema, text string, spaces map[string]string) (tree.Target, error) {
	p := &identifierParser{schema, spaces, text}
	var t tree.Target
	for p.rest != "" {
		if !p.take("/") {
			return nil, Invalid("the path is not an instance-identifier: want /module:name, and [key='value'] after a list, at " + p.rest)
		}
		s, err := p.step(t.Schema())
		if err != nil {
			return nil, WithPath(err, t.Path())
		}
		t = append(t, s)
	}
	if t.IsRoot() {
		return nil, Invalid("the path names nothing: want one as in /pod:coe")
	}
	return t, nil
}

func (p *identifierParser) take(token string) bool {
	rest, ok := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return ok
}

// step reads a name and its predicates.
func (p *identifierParser) step(parent *yang.Node) (tree.Step, error) {
	node, err := Draft02.child(p.schema, parent, p.name("/["))
	if err != nil {
		return tree.Step{}, err
	}
	values := map[string]string{}
	for p.take("[") {
		name := LocalName(p.name("="))
		value, ok := p.value()
		if _, twice := values[name]; twice || !ok {
			return tree.Step{}, Invalid("the path is not an instance-identifier: want [key='value'] after " + node.Name)
		}
		values[name] = value
	}
	keys, err := keysOf(node, values)
	return tree.Step{Node: node, Keys: keys}, err
}

// name reads up to one of the ends, and puts the module in place of its prefix.
func (p *identifierParser) name(ends string) string {
	end := strings.IndexAny(p.rest, ends)
	if end < 0 {
		end = len(p.rest)
	}
	text := strings.TrimSpace(p.rest[:end])
	p.rest = p.rest[end:]
	prefix, name, prefixed := strings.Cut(text, ":")
	if space, declared := p.spaces[prefix]; prefixed && declared {
		for _, module := range p.schema.Modules {
			if module.Namespace == space {
				return module.Name + ":" + name
			}
		}
	}
	return text
}

// value reads ='value'] with either quote.
func (p *identifierParser) value() (value string, ok bool) {
	rest, ok := strings.CutPrefix(p.rest, "=")
	rest = strings.TrimLeft(rest, " ")
	if !ok || rest == "" || (rest[0] != '\'' && rest[0] != '"') {
		return "", false
	}
	value, rest, ok = strings.Cut(rest[1:], rest[:1])
	p.rest = strings.TrimLeft(rest, " ")
	return value, ok && p.take("]")
}

// keysOf are the keys of an entry, in their order, or the value of a leaf-list's.
func keysOf(node *yang.Node, values map[string]string) ([]string, error) {
	leaves := node.Keys
	if node.Kind == yang.LeafList {
		leaves = []*yang.Node{node}
	}
	if len(values) != len(leaves) || node.Kind == yang.List && len(leaves) == 0 {
		return nil, Invalid(node.Name + " does not have these keys: the path names one instance by all its keys")
	}
	var keys []string
	for _, leaf := range leaves {
		name := leaf.Name
		if node.Kind == yang.LeafList {
			name = "."
		}
		value, given := values[name]
		if !given || value == "" { // an empty key has no place in a path of draft-02
			return nil, Invalid(node.Name + " lacks its key " + name)
		}
		canonical, err := leaf.Canonical(value)
		if err != nil {
			return nil, err
		}
		keys = append(keys, canonical)
	}
	return keys, nil
}

// LocalName is a name without its module.
func LocalName(name string) string { return name[strings.IndexByte(name, ':')+1:] }
