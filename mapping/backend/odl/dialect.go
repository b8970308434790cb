package odl

import (
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// The names of the RESTCONF dialects, as in Config.Dialect, and their media types.
const (
	draft02     = "draft-02"
	oxygen8040  = "rfc8040-oxygen"
	neon8040    = "rfc8040-neon"
	rfc8040     = "rfc8040"
	jsonOfDraft = "application/json"
	jsonOfRFC   = "application/yang-data+json"
)

// dialect describes a variant of RESTCONF.
type dialect struct {
	name  string
	data  string // path of the config datastore
	query string // of a GET of the config datastore
	// operational is the path of the operational datastore, and state the query of its GET.
	operational, state string
	media              string
	equal              bool // keys are written list=key, not list/key
	// many: a POST may contain many entries of a list; all or none of them are created.
	many bool
	// together: requests may be concurrent. RFC 8040 of Oxygen and Neon fails concurrent
	// writes.
	together bool
	// missing reports whether an answer means that the data does not exist.
	missing func(*answerError) bool
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
var dialects = []dialect{
	{name: draft02, data: "/restconf/config", operational: "/restconf/operational", media: jsonOfDraft, many: true, together: true, missing: saysDataMissing},
	{name: oxygen8040, data: "/rests/data", query: "content=config", operational: "/rests/data", state: "content=nonconfig", media: jsonOfRFC, equal: true, many: true, missing: never, opaque: true},
	{name: neon8040, data: "/rests/data", query: "content=config", operational: "/rests/data", state: "content=nonconfig", media: jsonOfRFC, equal: true, many: true, missing: isNotFound},
	{name: rfc8040, data: "/rests/data", query: "content=config", operational: "/rests/data", state: "content=nonconfig", media: jsonOfRFC, equal: true, together: true, missing: isNotFound},
}

// Dialects returns the valid values of Config.Dialect.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}

func dialectOf(name string) dialect {
	for _, d := range dialects {
		if d.name == name {
			return d
		}
	}
	return dialect{}
}

func never(*answerError) bool               { return false }
func isNotFound(err *answerError) bool      { return err.status == 404 }
func saysDataMissing(err *answerError) bool { return err.status == 404 && err.tag == "data-missing" }

// container returns the path of a list's container.
func (d *dialect) container(l *codec.List) string { return d.data + "/" + l.Top() }

// entry returns the path of an entry.
func (d *dialect) entry(l *codec.List, key string) string {
	first, next := "/", "/"
	if d.equal {
		first, next = "=", ","
	}
	path := d.container(l) + "/" + l.Name + first
	if l.FirstKey != "" {
		path += escape(l.FirstKey) + next
	}
	return path + escape(key)
}

// escape returns a key for a path. It escapes every reserved character, because
// controllers differ in those that they accept, such as ":".
func escape(key string) string {
	return strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
}
