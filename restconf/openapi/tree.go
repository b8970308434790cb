package openapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// dialect is the form of the paths of a tree.
type dialect struct {
	title  string
	prefix string
	id     string // the prefix of the names of operations
	draft  bool
	config bool // the tree can be written
	json   []string
	xml    []string
	errors string // the schema of an error's body

	replaced, posted, deleted int
}

var dialects = []dialect{
	{
		title: "RFC 8040", prefix: "/rests/data", id: "rfc8040", config: true,
		json: []string{"application/yang-data+json", "application/json"}, xml: []string{"application/yang-data+xml", "application/xml"},
		errors: "errors.rfc8040", replaced: 204, posted: 201, deleted: 204,
	},
	{
		title: "draft-02 config", prefix: "/restconf/config", id: "config", draft: true, config: true,
		json: draftJSON, xml: draftXML, errors: "errors.draft02", replaced: 200, posted: 204, deleted: 200,
	},
	{
		title: "draft-02 operational", prefix: "/restconf/operational", id: "operational", draft: true,
		json: draftJSON, xml: draftXML, errors: "errors.draft02",
	},
}

var (
	draftJSON = []string{"application/yang.data+json", "application/json"}
	draftXML  = []string{"application/yang.data+xml", "application/xml"}
)

// place is a resource: a node, and the path to an instance of it.
type place struct {
	dialect dialect
	node    *yang.Node // nil for the whole datastore
	path    string
	keys    []object // the parameters in the path
	entries bool     // the place is a list as a whole
	tags    []string
}

// addTree adds the paths of one tree.
func (b *builder) addTree(d dialect) {
	root := place{dialect: d, path: d.prefix}
	for _, module := range b.Schema.Modules {
		for _, top := range module.Top {
			if !d.config || top.Config || !d.draft {
				root.tags = b.tag(d.title+" "+member(top), b.aboutTop(top))
				b.addPlaces(root.below(top))
			}
		}
	}
	root.tags = b.tag(d.title+" datastore", "The whole datastore.")
	b.addPlace(root)
}

// aboutTop returns the description of a top container.
func (b *builder) aboutTop(top *yang.Node) string {
	words := strings.Join(strings.Fields(top.Description), " ")
	if says := b.Says(top); says != "" {
		return strings.TrimSpace(words + " Read-only: " + says + ".")
	}
	return words
}

// addPlaces adds a container or a list, and all nodes below it. Entries of a list without keys
// have no path; their container has them.
func (b *builder) addPlaces(at place) {
	if at.node.Kind == yang.List {
		if !at.dialect.draft {
			all := at
			all.entries = true
			b.addPlace(all)
		}
		if len(at.node.Keys) == 0 {
			return
		}
		at = at.entry()
	}
	b.addPlace(at)
	for _, child := range at.node.Children {
		if child.Kind == yang.Container || child.Kind == yang.List {
			b.addPlaces(at.below(child))
		}
	}
}

// below returns the place of a child. If the child is a list, it is the list as a whole.
func (p place) below(child *yang.Node) place {
	p.node = child
	p.path += "/" + member(child)
	return p
}

// entry returns the place of an entry of the list at p.
func (p place) entry() place {
	keys := make([]object, len(p.keys), len(p.keys)+len(p.node.Keys))
	copy(keys, p.keys)
	mark := "="
	if p.dialect.draft {
		mark = "/"
	}
	for _, key := range p.node.Keys {
		schema := leaf(key)
		delete(schema, "xml")
		delete(schema, "description")
		if schema["type"] == "string" && schema["minLength"] == nil {
			schema["minLength"] = 1
		}
		parameter := object{"name": p.parameter(key), "in": "path", "required": true, "schema": schema}
		describe(parameter, key, "")
		keys = append(keys, parameter)
		p.path += mark + "{" + p.parameter(key) + "}"
		if !p.dialect.draft {
			mark = ","
		}
	}
	p.keys = keys
	return p
}

// parameter returns the name of a key as a parameter of the path. Keys of two lists in a path can
// have the same name.
func (p place) parameter(key *yang.Node) string {
	name := key.Name
	for n := 1; p.names(name); n++ {
		name = p.node.Name + "-" + key.Name
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
	}
	return name
}

// names reports whether the path has a parameter with a name.
func (p place) names(parameter string) bool {
	return slices.ContainsFunc(p.keys, func(key object) bool { return key["name"] == parameter })
}

// operationID returns the name of an operation of p for programs.
func (p place) operationID(method string) string {
	id := method + "." + p.dialect.id
	if p.node != nil {
		id += "." + componentName(p.node)
	}
	if p.entries {
		id += ".all"
	}
	return id
}
