package restconf

import (
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// dialect is how one version of RESTCONF differs from the other.
type dialect struct {
	// draft is set for draft-bierman-02 as OpenDaylight speaks it.
	draft bool

	style  yang.Style
	mode   yang.Mode
	media  []media // the first is the default
	errors media   // what an error's body is sent as where it is JSON

	errorsMember string // of an error's body
	dataMember   string // around the whole datastore
	dataSpace    string // the namespace of that in XML
	missingTag   string // of a GET of what is not there
	// bodyTag stands for every tag of an error that decoding a body or a key
	// found; empty: each has its own.
	bodyTag string
	patches string // media types that PATCH takes, for Accept-Patch

	replaced, posted, deleted int // status codes

	keyMarks   string                       // before the first key in a path, and before further ones
	unescape   func(string) (string, error) // of one path segment
	parameters map[string]func(*query, string) error
	lax        bool // unknown parameters are ignored, unless a write without would be another
}

// media is a media type and how data are written and read in it.
type media struct {
	name  string
	codec codec
}

var draft02 = &dialect{
	draft: true,
	style: yang.Draft02,
	mode:  yang.Lenient,
	media: []media{
		{"application/yang.data+json", jsonCodec{}},
		{"application/json", jsonCodec{}},
		{"application/yang.data+xml", xmlCodec{}},
		{"application/xml", xmlCodec{}},
		{"text/xml", xmlCodec{}},
	},
	errors:       media{"application/json", jsonCodec{}},
	errorsMember: "errors",
	dataMember:   "data",
	dataSpace:    "urn:ietf:params:xml:ns:netconf:base:1.0",
	missingTag:   "data-missing",
	bodyTag:      "malformed-message",
	replaced:     http.StatusOK,
	posted:       http.StatusNoContent,
	deleted:      http.StatusOK,
	keyMarks:     "//",
	unescape:     url.QueryUnescape, // "+" is a space
	lax:          true,
	parameters: map[string]func(*query, string) error{
		"depth":         (*query).setDepth,
		"prettyPrint":   (*query).setPretty,
		"with-defaults": (*query).setDefaults,
	},
}

var rfc8040 = &dialect{
	style: yang.RFC7951,
	mode:  yang.Strict,
	media: []media{
		{"application/yang-data+json", jsonCodec{}},
		{"application/json", jsonCodec{}},
		{"application/yang-data+xml", xmlCodec{}},
		{"application/xml", xmlCodec{}},
		{"text/xml", xmlCodec{}},
	},
	errors:       media{"application/yang-data+json", jsonCodec{}},
	errorsMember: "ietf-restconf:errors",
	dataMember:   "ietf-restconf:data",
	dataSpace:    restconfSpace,
	missingTag:   "invalid-value",
	patches:      "application/yang-data+json, application/yang-data+xml, application/yang-patch+json, application/yang-patch+xml",
	replaced:     http.StatusNoContent,
	posted:       http.StatusCreated,
	deleted:      http.StatusNoContent,
	keyMarks:     "=,",
	unescape:     url.PathUnescape,
	parameters: map[string]func(*query, string) error{
		"content":       (*query).setContent,
		"depth":         (*query).setDepth,
		"fields":        (*query).setFields,
		"with-defaults": (*query).setDefaults,
		"insert":        (*query).setInsert,
		"point":         (*query).setPoint,
		dryRun:          (*query).setDryRun,
	},
}

// nmda is RFC 8527: a datastore is named, so no content is asked for.
var nmda = rfc8040.without("content")

// without is d where a query parameter means nothing.
func (d *dialect) without(parameter string) *dialect {
	other := *d
	other.parameters = maps.Clone(d.parameters)
	delete(other.parameters, parameter)
	return &other
}

// dialectOf guesses the dialect of a request that reached no tree.
func dialectOf(r *http.Request) *dialect {
	for _, prefix := range []string{
		"/restconf/config", "/restconf/operational", "/restconf/modules", "/restconf/streams", "/restconf/operations",
	} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return draft02
		}
	}
	return rfc8040
}
