package openapi

import (
	"maps"
	"slices"
	"strconv"

	"github.com/coe-bridge/coe-bridge/yang"
)

// addPlace adds the operations of one path.
func (b *builder) addPlace(p place) {
	item := object{"get": b.get(p)}
	if len(p.keys) > 0 {
		item["parameters"] = p.keys
	}
	if p.dialect.config && p.node == nil {
		item["post"] = b.post(p)
		if !p.dialect.draft {
			item["put"], item["patch"] = b.put(p), b.patch(p)
		}
	} else if p.dialect.config && !p.entries && b.Writable(p.node) {
		item["put"], item["post"], item["delete"] = b.put(p), b.post(p), b.remove(p)
		if !p.dialect.draft {
			item["patch"] = b.patch(p)
		}
	}
	b.paths[p.path] = item
}

// what returns a name of the resource for people.
func (p place) what() string {
	switch {
	case p.node == nil:
		return "the datastore"
	case p.entries:
		return "all " + p.node.Name
	case p.node.Kind == yang.List:
		return "an entry of " + p.node.Name
	}
	return p.node.Name
}

func (p place) operation(method, summary string, parameters ...string) object {
	out := object{"operationId": p.operationID(method), "summary": summary + " " + p.what(), "tags": p.tags}
	if len(parameters) > 0 {
		out["parameters"] = references("parameters", parameters)
	}
	return out
}

func references(kind string, names []string) []object {
	all := make([]object, len(names))
	for i, name := range names {
		all[i] = ref(kind, name)
	}
	return all
}

// responses adds the responses of failures to the ones of success.
func (p place) responses(success object, failures ...int) object {
	for _, status := range append(failures, 400, 401, 403, 404, 405, 503) {
		name := strconv.Itoa(status)
		success[name] = ref("responses", p.dialect.errors+"."+name)
	}
	success["default"] = ref("responses", p.dialect.errors+".default")
	return success
}

func (b *builder) get(p place) object {
	parameters := []string{"depth", "with-defaults", "prettyPrint"}
	if !p.dialect.draft {
		parameters = []string{"content", "depth", "fields", "with-defaults"}
	}
	out := p.operation("get", "Read", append(parameters, "If-None-Match", "If-Modified-Since")...)
	out["responses"] = p.responses(object{
		"200": object{
			"description": "The resource, or the requested part of it.",
			"headers":     object{"ETag": ref("headers", "ETag"), "Last-Modified": ref("headers", "Last-Modified")},
			"content":     b.content(p, toRead),
		},
		"304": object{"description": "The resource has not changed since the client read it."},
	}, 406, 412)
	return out
}

func (b *builder) put(p place) object {
	out := p.operation("put", "Create or replace", p.writes(p.node != nil && b.Placed(p.node))...)
	out["requestBody"] = object{"required": true, "content": b.content(p, toWrite)}
	out["responses"] = p.responses(object{
		"201":                            made("The resource is created."),
		strconv.Itoa(p.dialect.replaced): object{"description": "The resource is replaced."},
	}, 409, 412, 413, 415)
	return out
}

func (b *builder) post(p place) object {
	out := p.operation("post", "Create a child of", p.writes(b.placesIn(p.node))...)
	out["requestBody"] = object{"required": true, "content": b.childContent(p)}
	out["responses"] = p.responses(object{strconv.Itoa(p.dialect.posted): made("The child is created.")}, 409, 412, 413, 415)
	return out
}

func (b *builder) remove(p place) object {
	out := p.operation("delete", "Delete", p.writes(false)...)
	out["responses"] = p.responses(object{strconv.Itoa(p.dialect.deleted): object{"description": "The resource is deleted."}}, 409, 412)
	return out
}

func (b *builder) patch(p place) object {
	out := p.operation("patch", "Merge into, or edit,", append(p.writes(false), "dry-run")...)
	content := object{"application/yang-patch+json": object{"schema": ref("schemas", "yang-patch")}, "application/yang-patch+xml": anything}
	maps.Copy(content, b.content(p, toRead))
	out["requestBody"] = object{"required": true, "content": content}
	out["responses"] = p.responses(object{
		"200": object{"description": "All edits of a YANG Patch are made.", "content": object{
			"application/yang-data+json": object{"schema": ref("schemas", "yang-patch-status")},
			"application/yang-data+xml":  anything,
		}},
		"204": object{"description": "The body is merged into the resource."},
	}, 409, 412, 413, 415)
	return out
}

// writes returns the names of the parameters of an operation that writes.
func (p place) writes(placed bool) []string {
	names := []string{"If-Match", "If-None-Match", "If-Unmodified-Since"}
	if placed && !p.dialect.draft {
		names = append(names, "insert", "point")
	}
	return names
}

// placesIn reports whether n has a list that is ordered by its users.
func (b *builder) placesIn(n *yang.Node) bool {
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.Children, b.Placed)
}

func made(description string) object {
	return object{"description": description, "headers": object{"Location": ref("headers", "Location")}}
}

// anything is a body that JSON Schema cannot describe.
var anything = object{"schema": object{}}

// content returns the media types of a body with the instance at p.
func (b *builder) content(p place, u use) object {
	var inJSON, inXML object
	switch {
	case p.node == nil:
		inJSON, inXML = p.wrap(b.datastoreMember(p), b.children(p, u)), object{"type": "object", "xml": object{"name": "data"}}
	case p.node.Kind == yang.List:
		entries := object{"type": "array", "items": b.schema(p.node, u), "minItems": 1}
		if !p.entries {
			entries["maxItems"] = 1
		}
		inJSON, inXML = p.wrap(p.top(p.node), entries), b.schema(p.node, u)
	default:
		inJSON = p.wrap(p.top(p.node), b.schema(p.node, u))
		inXML = b.schema(p.node, u)
	}
	return p.media(inJSON, inXML)
}

func (b *builder) datastoreMember(p place) string {
	if p.dialect.draft {
		return "data"
	}
	return "ietf-restconf:data"
}

// top returns the name that n has as the only member of a body.
func (p place) top(n *yang.Node) string {
	if p.dialect.draft {
		return n.Name
	}
	return n.Module.Name + ":" + n.Name
}

func (p place) wrap(name string, schema object) object {
	return object{"type": "object", "properties": object{name: schema}, "required": []string{name}, "additionalProperties": false}
}

func (p place) media(inJSON, inXML object) object {
	content := object{}
	for _, name := range p.dialect.json {
		content[name] = object{"schema": inJSON}
	}
	for _, name := range p.dialect.xml {
		content[name] = object{"schema": inXML}
	}
	return content
}

// childContent returns the body of a POST: a child of the instance at p, or several entries of
// one list.
func (b *builder) childContent(p place) object {
	children := b.children(p, toWrite)
	children["minProperties"] = 1
	return p.media(children, object{"type": "object", "description": "The child as an element."})
}

// children returns the schemas of the children of p, by the name that each has in its own body.
func (b *builder) children(p place, u use) object {
	properties := object{}
	for _, child := range b.nodesBelow(p) {
		if u == toRead || child.Config && b.Writable(child) {
			name := p.top(child)
			if p.node == nil {
				name = member(child)
			}
			properties[name] = b.instances(child, u)
		}
	}
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

func (b *builder) nodesBelow(p place) []*yang.Node {
	if p.node != nil {
		return p.node.Children
	}
	var tops []*yang.Node
	for _, module := range b.Schema.Modules {
		tops = append(tops, module.Top...)
	}
	return tops
}
