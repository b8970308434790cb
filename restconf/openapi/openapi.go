// Package openapi describes a RESTCONF server as an OpenAPI 3.1 document. In both dialects,
// every container, list and list entry of the schema has a path with its methods, parameters,
// media types and errors. The document also has the streams, the operation, the paths of
// discovery, and a JSON Schema of every node.
//
// The version is 3.1, because 3.0 has only a part of JSON Schema (3.1 allows [null], which is
// YANG's empty, and bounds beside a reference) and no authentication by client certificates.
//
// The package knows the schema, and Config says which nodes can be written. It knows neither
// HTTP nor data. Its page (page.go) shows such a document to people.
package openapi

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/yang"
)

// specification is the version of OpenAPI that documents are written in.
const specification = "3.1.0"

// Config describes the server of a document.
type Config struct {
	Schema *yang.Schema
	// Version identifies the schema.
	Version string
	// Writable reports whether clients may write instances of a node.
	Writable func(*yang.Node) bool
	// Placed reports whether insert and point set the position of an entry in a list.
	Placed func(*yang.Node) bool
	// Says returns where the data of a top container that clients cannot write come from.
	Says func(top *yang.Node) string
}

// object is a JSON object. It is written with its members in the order of their names,
// so equal documents are equal bytes.
type object map[string]any

// builder collects the parts of one document.
type builder struct {
	Config
	paths   object
	schemas object
	tags    []object
}

// Write writes the document.
func Write(cfg Config) ([]byte, error) {
	b := &builder{Config: cfg, paths: object{}, schemas: sharedSchemas()}
	b.addDiscovery()
	b.addStreams()
	for _, d := range dialects {
		b.addTree(d)
	}
	text, err := json.Marshal(object{
		"openapi": specification,
		"info": object{
			"title":       "coe-bridge",
			"version":     cfg.Version,
			"description": about,
		},
		"servers":  []object{{"url": "/", "description": "the server of this document"}},
		"security": []object{{"basic": []string{}}, {"certificate": []string{}}},
		"tags":     b.tags,
		"paths":    b.paths,
		"components": object{
			"schemas": b.schemas, "parameters": sharedParameters(), "responses": sharedResponses(), "headers": sharedHeaders(),
			"securitySchemes": object{
				"basic":       object{"type": "http", "scheme": "basic", "description": "A user and a password that the server knows."},
				"certificate": object{"type": "mutualTLS", "description": "A client certificate that the server maps to a role."},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return text, nil
}

// about is the document's description.
const about = "RESTCONF over one tree, in two dialects: RFC 8040 under /rests/data, and OpenDaylight's " +
	"draft-bierman-netconf-restconf-02 under /restconf/config and /restconf/operational. " +
	"/restconf/data is another name for /rests/data, and /rests/ds has single datastores (RFC 8527).\n\n" +
	"Every path takes OPTIONS, and HEAD where it takes GET. A client with the role reader gets 403 from every other method. " +
	"Requests of draft-02 can have names without their module, quoted numbers and booleans, and null members; this document describes the responses."

// tag adds a group of paths and returns its name.
func (b *builder) tag(name, description string) []string {
	known := slices.ContainsFunc(b.tags, func(t object) bool { return t["name"] == name })
	if !known {
		b.tags = append(b.tags, object{"name": name, "description": description})
	}
	return []string{name}
}

// ref returns a reference to a component.
func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }
