// Package wire is RESTCONF on the wire: dialects, paths, media types, JSON and XML,
// queries, errors, and YANG Patches as edits of the tree. It does not know who serves or
// asks.
package wire

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Dialect is a table of the differences between versions of RESTCONF.
type Dialect struct {
	// Draft is set for draft-bierman-02 as OpenDaylight speaks it.
	Draft bool

	style  yang.Style
	mode   yang.Mode
	Media  []Media // the first is the default
	Errors Media   // of errors in JSON

	errorsMember string // of an error's body
	dataMember   string // around the whole datastore
	dataSpace    string // the namespace of that in XML
	missingTag   string // of a GET of missing data
	// bodyTag replaces the tags of errors in a body or a key; empty: each has its own.
	bodyTag string
	Patches string // media types that PATCH takes, for Accept-Patch

	Replaced, Posted, Deleted int // status codes

	keyMarks   string                       // before the first key in a path, and before further ones
	unescape   func(string) (string, error) // of one path segment
	parameters map[string]func(*Query, string) error
	Lax        bool // unknown parameters are ignored, unless they would change a write
}

// Media is a media type and its codec.
type Media struct {
	Name  string
	codec codec
}

// Draft02 is draft-bierman-netconf-restconf-02.
var Draft02 = &Dialect{
	Draft: true,
	style: yang.Draft02,
	mode:  yang.Lenient,
	Media: []Media{
		{"application/yang.data+json", jsonCodec{}},
		{"application/json", jsonCodec{}},
		{"application/yang.data+xml", xmlCodec{}},
		{"application/xml", xmlCodec{}},
		{"text/xml", xmlCodec{}},
	},
	Errors:       Media{"application/json", jsonCodec{}},
	errorsMember: "errors",
	dataMember:   "data",
	dataSpace:    "urn:ietf:params:xml:ns:netconf:base:1.0",
	missingTag:   "data-missing",
	bodyTag:      "malformed-message",
	Replaced:     http.StatusOK,
	Posted:       http.StatusNoContent,
	Deleted:      http.StatusOK,
	keyMarks:     "//",
	unescape:     url.QueryUnescape, // "+" is a space
	Lax:          true,
	parameters: map[string]func(*Query, string) error{
		"depth":         (*Query).setDepth,
		"prettyPrint":   (*Query).setPretty,
		"with-defaults": (*Query).setDefaults,
	},
}

// RFC8040 is RFC 8040.
var RFC8040 = &Dialect{
	style: yang.RFC7951,
	mode:  yang.Strict,
	Media: []Media{
		{"application/yang-data+json", jsonCodec{}},
		{"application/json", jsonCodec{}},
		{"application/yang-data+xml", xmlCodec{}},
		{"application/xml", xmlCodec{}},
		{"text/xml", xmlCodec{}},
	},
	Errors:       Media{"application/yang-data+json", jsonCodec{}},
	errorsMember: "ietf-restconf:errors",
	dataMember:   "ietf-restconf:data",
	dataSpace:    Space,
	missingTag:   "invalid-value",
	Patches:      "application/yang-data+json, application/yang-data+xml, application/yang-patch+json, application/yang-patch+xml",
	Replaced:     http.StatusNoContent,
	Posted:       http.StatusCreated,
	Deleted:      http.StatusNoContent,
	keyMarks:     "=,",
	unescape:     url.PathUnescape,
	parameters: map[string]func(*Query, string) error{
		"content":       (*Query).setContent,
		"depth":         (*Query).setDepth,
		"fields":        (*Query).setFields,
		"with-defaults": (*Query).setDefaults,
		"insert":        (*Query).setInsert,
		"point":         (*Query).setPoint,
		dryRun:          (*Query).setDryRun,
	},
}

// NMDA is RFC 8527: the path names the datastore, so there is no query parameter content.
var NMDA = RFC8040.without("content")

// without is d without a query parameter.
func (d *Dialect) without(parameter string) *Dialect {
	other := *d
	other.parameters = maps.Clone(d.parameters)
	delete(other.parameters, parameter)
	return &other
}
