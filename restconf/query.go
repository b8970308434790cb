package restconf

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// query is what a request's query parameters ask for.
type query struct {
	content string // "config", "nonconfig", "all"
	depth   int    // 0 means unbounded
	fields  string // not parsed yet: it needs the target's schema
	pretty  bool
	// defaults is how leaves with their default are told; empty: as they are stored.
	defaults string
	// insert and point are where a POST or PUT makes its entry of a list that its
	// users order; insert is empty where the query doesn't say.
	insert, point string
	// dryRun is set where a YANG Patch is to be looked at, and nothing made of it.
	dryRun bool
}

// maxDepth is the largest depth that RFC 8040 section 4.8.2 has.
const maxDepth = 65535

// parseQuery reads a request's parameters. Beside GET and HEAD only POST, PUT and a YANG
// Patch have some.
func (d *dialect) parseQuery(r *http.Request) (query, error) {
	q := query{content: "all"}
	if r.URL.RawQuery == "" {
		return q, nil
	}
	values, err := parameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	makes := r.Method == http.MethodPost || r.Method == http.MethodPut
	_, yangPatch := d.yangPatchOf(r)
	for name, given := range values {
		if d.lax && !reads && changesWrites(name) {
			return q, badQuery("there is no query parameter " + name + " here: it is for RFC 8040, at /rests/data")
		}
		suits := reads
		switch {
		case placing[name]:
			suits = makes
		case name == dryRun:
			suits = yangPatch
		}
		if err := d.parameter(&q, name, given, suits); err != nil {
			return q, err
		}
	}
	return q, q.checkPlace()
}

// parameters reads a query. It differs from url.ParseQuery in that a semicolon is
// as any other character: fields needs it.
func parameters(raw string) (map[string][]string, error) {
	values := map[string][]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, nameErr := url.QueryUnescape(name)
		value, valueErr := url.QueryUnescape(value)
		if err := errors.Join(nameErr, valueErr); err != nil {
			return nil, badQuery("the query can't be read: " + err.Error())
		}
		values[name] = append(values[name], value)
	}
	return values, nil
}

// placing are the parameters that POST and PUT have, dryRun is a YANG Patch's, all others
// are for GET.
var placing = map[string]bool{"insert": true, "point": true}

// dryRun is our own parameter: the edits are judged as if they were made, and nothing is
// written. It is none that a header could replace: a server that doesn't know it must
// refuse it.
const dryRun = "dry-run"

// changesWrites tells whether a write with that parameter is not meant to be made as it
// is without: who gives it has to be told where it means nothing.
func changesWrites(parameter string) bool { return placing[parameter] || parameter == dryRun }

func (d *dialect) parameter(q *query, name string, given []string, suits bool) error {
	set := d.parameters[name]
	switch {
	case d.lax && (set == nil || !suits):
		return nil
	case set == nil:
		return badQuery("there is no query parameter " + name)
	case !suits && placing[name]:
		return badQuery("the query parameter " + name + " is for POST and PUT alone")
	case !suits && name == dryRun:
		return badQuery("the query parameter " + name + " is for a YANG Patch alone")
	case !suits:
		return badQuery("the query parameter " + name + " is for GET alone")
	case len(given) > 1:
		return badQuery("the query parameter " + name + " is given more than once")
	}
	return set(q, given[0])
}

func badQuery(message string) error {
	return &yang.Error{Type: "protocol", Tag: "invalid-value", Message: message}
}

func (q *query) setInsert(value string) error {
	if !slices.Contains(places, value) {
		return badQuery("insert has to be one of " + strings.Join(places, ", "))
	}
	q.insert = value
	return nil
}

func (q *query) setPoint(value string) error {
	if value == "" {
		return badQuery("point names nothing")
	}
	q.point = value
	return nil
}

// checkPlace checks that point is there where insert needs it, and only there.
func (q *query) checkPlace() error {
	needsPoint := q.insert == "before" || q.insert == "after"
	switch {
	case needsPoint && q.point == "":
		return badQuery("insert=" + q.insert + " needs the query parameter point")
	case !needsPoint && q.point != "":
		return badQuery("point is for insert=before and insert=after alone")
	}
	return nil
}

func (q *query) setContent(value string) error {
	switch value {
	case "config", "nonconfig", "all":
		q.content = value
		return nil
	}
	return badQuery(`content has to be "config", "nonconfig" or "all"`)
}

func (q *query) setDepth(value string) error {
	if value == "unbounded" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxDepth {
		return badQuery(`depth has to be "unbounded" or a number from 1 to 65535`)
	}
	q.depth = n
	return nil
}

func (q *query) setDryRun(value string) error {
	if value != "true" && value != "false" {
		return badQuery(dryRun + ` has to be "true" or "false"`)
	}
	q.dryRun = value == "true"
	return nil
}

func (q *query) setFields(value string) error {
	if value == "" {
		return badQuery("fields names nothing")
	}
	q.fields = value
	return nil
}

func (q *query) setPretty(value string) error {
	switch value {
	case "true", "false":
		q.pretty = value == "true"
		return nil
	}
	return badQuery(`prettyPrint has to be "true" or "false"`)
}

// The modes of with-defaults (RFC 6243 section 3). What is stored is what was set, so
// explicit is as without the parameter.
const (
	reportAll       = "report-all"
	reportAllTagged = "report-all-tagged"
	trimDefaults    = "trim"
	explicitOnly    = "explicit"
)

func (q *query) setDefaults(value string) error {
	switch value {
	case reportAll, reportAllTagged, trimDefaults, explicitOnly:
		q.defaults = value
		return nil
	}
	return badQuery(`with-defaults has to be "report-all", "report-all-tagged", "trim" or "explicit"`)
}

// addsDefaults tells whether leaves that are not there are told with their default.
func (q *query) addsDefaults() bool { return q.defaults == reportAll || q.defaults == reportAllTagged }

// trims tells whether the answer is less than, or laid out otherwise than, what
// is stored.
func (q *query) trims() bool {
	return q.depth > 0 || q.fields != "" || q.pretty || q.addsDefaults() || q.defaults == trimDefaults
}
