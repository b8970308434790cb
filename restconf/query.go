package restconf

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// query is what a GET's query parameters ask for.
type query struct {
	content string // "config", "nonconfig", "all"
	depth   int    // 0 means unbounded
	fields  string // not parsed yet: it needs the target's schema
	pretty  bool
}

// maxDepth is the largest depth that RFC 8040 section 4.8.2 has.
const maxDepth = 65535

// parseQuery reads a request's parameters. Only GET and HEAD have some.
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
	for name, given := range values {
		if err := d.parameter(&q, name, given, reads); err != nil {
			return q, err
		}
	}
	return q, nil
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

func (d *dialect) parameter(q *query, name string, given []string, reads bool) error {
	set := d.parameters[name]
	switch {
	case d.lax && (set == nil || !reads):
		return nil
	case set == nil:
		return badQuery("there is no query parameter " + name)
	case !reads:
		return badQuery("the query parameter " + name + " is for GET alone")
	case len(given) > 1:
		return badQuery("the query parameter " + name + " is given more than once")
	}
	return set(q, given[0])
}

func badQuery(message string) error {
	return &yang.Error{Type: "protocol", Tag: "invalid-value", Message: message}
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

// setDefaults takes every mode for the same: no writable module has a default,
// and the read-only trees state what they set.
func (q *query) setDefaults(value string) error {
	switch value {
	case "report-all", "trim", "explicit":
		return nil
	}
	return badQuery(`with-defaults has to be "report-all", "trim" or "explicit"`)
}

// trims tells whether the answer is less than, or laid out otherwise than, what
// is stored.
func (q *query) trims() bool { return q.depth > 0 || q.fields != "" || q.pretty }
