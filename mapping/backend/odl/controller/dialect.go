package controller

import (
	"net/url"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// The names of the RESTCONF dialects, and their media types.
const (
	Draft02     = "draft-02"
	Oxygen8040  = "rfc8040-oxygen"
	Neon8040    = "rfc8040-neon"
	RFC8040     = "rfc8040"
	JSONOfDraft = "application/json"
	JSONOfRFC   = "application/yang-data+json"
)

// Dialect describes a variant of RESTCONF.
type Dialect struct {
	Name  string
	Data  string // path of the config datastore
	Query string // of a GET of the config datastore
	// Operational is the path of the operational datastore, and State the query of its GET.
	Operational, State string
	Media              string
	Equal              bool // keys are written list=key, not list/key
	// Many: a POST may contain many entries of a list; all or none of them are created.
	Many bool
	// Together: requests may be concurrent. RFC 8040 of Oxygen and Neon fails concurrent
	// writes.
	Together bool
	// Missing reports whether an answer means that the data does not exist.
	Missing func(*AnswerError) bool
	// Opaque: data that does not exist is answered like any failure (500).
	Opaque bool
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
	{Name: Draft02, Data: "/restconf/config", Operational: "/restconf/operational", Media: JSONOfDraft, Many: true, Together: true, Missing: saysDataMissing},
	{Name: Oxygen8040, Data: "/rests/data", Query: "content=config", Operational: "/rests/data", State: "content=nonconfig", Media: JSONOfRFC, Equal: true, Many: true, Missing: never, Opaque: true},
	{Name: Neon8040, Data: "/rests/data", Query: "content=config", Operational: "/rests/data", State: "content=nonconfig", Media: JSONOfRFC, Equal: true, Many: true, Missing: isNotFound},
	{Name: RFC8040, Data: "/rests/data", Query: "content=config", Operational: "/rests/data", State: "content=nonconfig", Media: JSONOfRFC, Equal: true, Together: true, Missing: isNotFound},
}

// Dialects returns the names of the supported dialects.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.Name
	}
	return names
}

// DialectOf returns the dialect with a name; the zero value if there is none.
func DialectOf(name string) Dialect {
	for _, d := range dialects {
		if d.Name == name {
			return d
		}
	}
	return Dialect{}
}

func never(*AnswerError) bool               { return false }
func isNotFound(err *AnswerError) bool      { return err.Status == 404 }
func saysDataMissing(err *AnswerError) bool { return err.Status == 404 && err.Tag == "data-missing" }

// Container returns the path of a list's container.
func (d *Dialect) Container(l *codec.List) string { return d.Data + "/" + l.Top() }

// Entry returns the path of an entry.
func (d *Dialect) Entry(l *codec.List, key string) string {
	first, next := "/", "/"
	if d.Equal {
		first, next = "=", ","
	}
	path := d.Container(l) + "/" + l.Name + first
	if l.FirstKey != "" {
		path += Escape(l.FirstKey) + next
	}
	return path + Escape(key)
}

// Escape returns a key for a path. It escapes every reserved character, because
// controllers differ in those that they accept, such as ":".
func Escape(key string) string {
	return strings.ReplaceAll(url.QueryEscape(key), "+", "%20")
}
