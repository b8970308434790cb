package wire

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Query is what a request asks for beside its target and body.
type Query struct {
	// Patch is the media type of the data in a YANG Patch; nil for other requests.
	Patch    *Media
	Content  tree.Part
	Depth    int    // 0 means unbounded
	Fields   string // not parsed yet: it needs the target's schema
	Pretty   bool
	Defaults tree.Defaults
	// Insert and Point are the place of the entry of a POST or PUT in a list that its users
	// order; Insert is empty if the query gives none.
	Insert, Point string
	// DryRun is set if a YANG Patch is checked, and not made.
	DryRun bool
}

// MaxDepth is the largest depth (RFC 8040 section 4.8.2).
const MaxDepth = 65535

// ParseQuery reads a request's parameters. GET, HEAD, POST, PUT and a YANG Patch have some.
func (d *Dialect) ParseQuery(r *http.Request) (Query, error) {
	q := Query{}
	if m, ok := d.YANGPatchOf(r); ok {
		q.Patch = &m
	}
	if r.URL.RawQuery == "" {
		return q, nil
	}
	values, err := Parameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	makes := r.Method == http.MethodPost || r.Method == http.MethodPut
	for name, given := range values {
		if d.Lax && !reads && changesWrites(name) {
			return q, Invalid("there is no query parameter " + name + " here: it is for RFC 8040, at /rests/data")
		}
		suits := reads
		switch {
		case placing[name]:
			suits = makes
		case name == dryRun:
			suits = q.Patch != nil
		}
		if err := d.Parameter(&q, name, given, suits); err != nil {
			return q, err
		}
	}
	return q, q.checkPlace()
}

// Parameters reads a query. Unlike url.ParseQuery it takes a semicolon as any other
// character, since fields needs it.
func Parameters(raw string) (map[string][]string, error) {
	values := map[string][]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if err := errors.Join(nameErr, valueErr); err != nil {
			return nil, Invalid("the query can't be read: " + err.Error())
		}
		values[name] = append(values[name], value)
	}
	return values, nil
}

// placing are the parameters of POST and PUT. dryRun is that of a YANG Patch. All others
// are for GET.
var placing = map[string]bool{"insert": true, "point": true}

// dryRun is our own parameter: the edits are checked, and nothing is written. It is not a
// header, since a server that does not know it must refuse the request.
const dryRun = "dry-run"

// changesWrites reports whether a parameter changes what a write does. A dialect without
// it refuses it instead of ignoring it.
func changesWrites(parameter string) bool { return placing[parameter] || parameter == dryRun }

// Parameter takes a query parameter. suits reports whether it is for the request's method.
func (d *Dialect) Parameter(q *Query, name string, given []string, suits bool) error {
	set := d.parameters[name]
	switch {
	case d.Lax && (set == nil || !suits):
		return nil
	case set == nil:
		return Invalid("there is no query parameter " + name)
	case !suits && placing[name]:
		return Invalid("the query parameter " + name + " is for POST and PUT alone")
	case !suits && name == dryRun:
		return Invalid("the query parameter " + name + " is for a YANG Patch alone")
	case !suits:
		return Invalid("the query parameter " + name + " is for GET alone")
	case len(given) > 1:
		return Invalid("the query parameter " + name + " is given more than once")
	}
	return set(q, given[0])
}

// Invalid is the error of a request that is wrong in itself.
func Invalid(message string) error {
	return &yang.Error{Type: "protocol", Tag: "invalid-value", Message: message}
}

func (q *Query) setInsert(value string) error {
	if !slices.Contains(tree.Places, value) {
		return Invalid("insert has to be one of " + strings.Join(tree.Places, ", "))
	}
	q.Insert = value
	return nil
}

func (q *Query) setPoint(value string) error {
	if value == "" {
		return Invalid("point names nothing")
	}
	q.Point = value
	return nil
}

// checkPlace checks that there is a point if insert needs it, and only then.
func (q *Query) checkPlace() error {
	needsPoint := tree.NeedsPoint(q.Insert)
	switch {
	case needsPoint && q.Point == "":
		return Invalid("insert=" + q.Insert + " needs the query parameter point")
	case !needsPoint && q.Point != "":
		return Invalid("point is for insert=before and insert=after alone")
	}
	return nil
}

func (q *Query) setContent(value string) error {
	part, known := map[string]tree.Part{"config": tree.PartConfig, "nonconfig": tree.PartState, "all": tree.PartAll}[value]
	if !known {
		return Invalid(`content has to be "config", "nonconfig" or "all"`)
	}
	q.Content = part
	return nil
}

func (q *Query) setDepth(value string) error {
	if value == "unbounded" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > MaxDepth {
		return Invalid(`depth has to be "unbounded" or a number from 1 to 65535`)
	}
	q.Depth = n
	return nil
}

func (q *Query) setDryRun(value string) error {
	if value != "true" && value != "false" {
		return Invalid(dryRun + ` has to be "true" or "false"`)
	}
	q.DryRun = value == "true"
	return nil
}

func (q *Query) setFields(value string) error {
	if value == "" {
		return Invalid("fields names nothing")
	}
	q.Fields = value
	return nil
}

func (q *Query) setPretty(value string) error {
	switch value {
	case "true", "false":
		q.Pretty = value == "true"
		return nil
	}
	return Invalid(`prettyPrint has to be "true" or "false"`)
}

// defaultsModes are the values of with-defaults.
var defaultsModes = map[string]tree.Defaults{
	"report-all": tree.DefaultsAll, "report-all-tagged": tree.DefaultsTagged, "trim": tree.DefaultsTrim, "explicit": tree.DefaultsAsStored,
}

func (q *Query) setDefaults(value string) error {
	mode, known := defaultsModes[value]
	if !known {
		return Invalid(`with-defaults has to be "report-all", "report-all-tagged", "trim" or "explicit"`)
	}
	q.Defaults = mode
	return nil
}
