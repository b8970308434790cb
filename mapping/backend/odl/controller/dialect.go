package controller

import (
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// The names of the RESTCONF dialects, and their media types.
const (
	Draft02     = "draft-02"
	oxygen8040  = "rfc8040-oxygen"
	neon8040    = "rfc8040-neon"
	rfc8040     = "rfc8040"
	jsonOfDraft = "application/json"
	JSONOfRFC   = "application/yang-data+json"
)

// Dialect describes a variant of RESTCONF.
type Dialect struct {
	Name string
	// Many: a POST may contain many entries of a list; all or none of them are created.
	Many  bool
	data  string // path of the config datastore
	query string // of a GET of the config datastore
	// operational is the path of the operational datastore, and state the query of its GET.
	operational, state string
	operations         string // path of the RPCs
	media              string
	equal              bool // keys are written list=key, not list/key
	// together: requests may be concurrent. RFC 8040 of Oxygen and Neon fails concurrent
	// writes.
	together bool
	// missing reports whether an answer means that the data does not exist.
	missing func(*AnswerError) bool
	// opaque: data that does not exist is answered like any failure (500).
	opaque bool
}

// dialects lists the supported dialects, the preferred one first.
//
//	                      draft-02          rfc8040-oxygen  rfc8040-neon  rfc8040
//	PUT new / again       201 / 200         201 / 200       201 / 204     201 / 204
//	POST new / dup        204 / 409         201 / 500       201 / 409     201 / 409
//	DELETE / missing      200 / 404         200 / 500       204 / 404     204 / 404
//	GET missing           404 data-missing  500             404           404
//	refused content       400, 500          500             400, 500      400
//	entries of one POST   many              many            many          one
//	writers               many              one             one           many
var dialects = []Dialect{
	{Name: Draft02, data: "/restconf/config", operational: "/restconf/operational", operations: "/restconf/operations", media: jsonOfDraft, Many: true, together: true, missing: saysDataMissing},
	{Name: oxygen8040, data: "/rests/data", query: "content=config", operational: "/rests/data", operations: "/rests/operations", state: "content=nonconfig", media: JSONOfRFC, equal: true, Many: true, missing: never, opaque: true},
	{Name: neon8040, data: "/rests/data", query: "content=config", operational: "/rests/data", operations: "/rests/operations", state: "content=nonconfig", media: JSONOfRFC, equal: true, Many: true, missing: isNotFound},
	{Name: rfc8040, data: "/rests/data", query: "content=config", operational: "/rests/data", operations: "/rests/operations", state: "content=nonconfig", media: JSONOfRFC, equal: true, together: true, missing: isNotFound},
}

// Dialects returns the names of the supported dialects.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.Name
	}
	return names
}

// dialectOf returns the dialect with a name; the zero value if there is none.
func dialectOf(name string) Dialect {
	for _, d := range dialects {
		if d.Name == name {
			return d
		}
	}
	return Dialect{}
}

func never(*AnswerError) bool               { return false }
func isNotFound(err *AnswerError) bool      { return err.Status == 404 }
func saysDataMissing(err *AnswerError) bool { return err.Status == 404 && err.tag == "data-missing" }

// container returns the path of a list's container.
func (d *Dialect) container(l *codec.List) string { return d.data + "/" + l.Top() }

// entry returns the path of an entry.
func (d *Dialect) entry(l *codec.List, key string) string {
	path := d.container(l) + "/" + l.Name
	if l.FirstKey != "" {
		return path + d.selector(l.FirstKey, key)
	}
	return path + d.selector(key)
}

// selector returns the part of a path that selects the entry with these keys.
func (d *Dialect) selector(keys ...string) string {
	escaped := make([]string, len(keys))
	for i, key := range keys {
		escaped[i] = Escape(key)
	}
	if d.equal {
		return "=" + strings.Join(escaped, ",")
	}
	return "/" + strings.Join(escaped, "/")
}

// Escape returns a key for a path. It escapes every reserved character, because
// controllers differ in those that they accept, such as ":".
func Escape(key string) string {
	return strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
}
