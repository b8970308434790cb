// Package openapi writes what a RESTCONF server offers as an OpenAPI 3.1 document: for
// both dialects a path for every container, list and list entry of the schema, with its
// methods, parameters, media types and errors; the streams, the operation and what
// clients discover the rest by; and a JSON Schema of every node.
//
// It is 3.1, not 3.0, because that has JSON Schema as it is (YANG's empty is [null],
// bounds stand beside a reference) and client certificates as a way to authenticate.
//
// The package knows the schema and is told what can be written. It knows neither HTTP
// nor data. Its page (page.go) shows such a document to people.
package openapi

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coe-bridge/coe-bridge/yang"
)

// specification is the version of OpenAPI that documents are written in.
const specification = "3.1.0"

// Config is what a document is about.
type Config struct {
	Schema *yang.Schema
	// Version tells documents of different schemas apart.
	Version string
	// Writable reports whether clients may write instances of a node.
	Writable func(*yang.Node) bool
	// Placed reports whether insert and point say where an entry of a list goes.
	Placed func(*yang.Node) bool
	// Says is told of a top container that can't be written: where its data come from.
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
		"servers":  []object{{"url": "/", "description": "where this document is from"}},
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
	"/restconf/data is /rests/data by another name, and /rests/ds has single datastores (RFC 8527).\n\n" +
	"Every path takes OPTIONS, and HEAD where it takes GET. Who may only read is answered 403 by every other method. " +
	"In draft-02 names may be without their module, numbers and booleans quoted and members null; what is written here is what is answered."

// tag adds a group of paths and returns its name.
func (b *builder) tag(name, description string) []string {
	known := slices.ContainsFunc(b.tags, func(t object) bool { return t["name"] == name })
	if !known {
		b.tags = append(b.tags, object{"name": name, "description": description})
	}
	return []string{name}
}

// ref refers to a component.
func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }
