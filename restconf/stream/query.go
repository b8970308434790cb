package stream

import (
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/restconf/xpath"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Times are the query parameters start-time and stop-time (RFC 8040 sections 4.8.7 and
// 4.8.8); zero: not given.
type Times struct{ Start, Stop time.Time }

// Read reads the query of a request for events. It passes every other parameter to other.
func (t *Times) Read(r *http.Request, other func(name, value string) error) error {
	values, err := wire.Parameters(r.URL.RawQuery)
	if err != nil {
		return err
	}
	for name, given := range values {
		switch {
		case len(given) > 1:
			err = wire.Invalid("the query parameter " + name + " is given more than once")
		case name == "start-time":
			t.Start, err = parseTime(name, given[0])
		case name == "stop-time":
			t.Stop, err = parseTime(name, given[0])
		default:
			err = other(name, given[0])
		}
		if err != nil {
			return err
		}
	}
	return t.check(time.Now())
}

func parseTime(name, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, wire.Invalid(name + " has to be a date and time as in 2026-11-21T10:00:00Z")
	}
	return at, nil
}

func (t *Times) check(now time.Time) error {
	switch {
	case t.Start.After(now):
		return wire.Invalid("start-time is in the future")
	case t.Stop.IsZero():
		return nil
	case t.Start.IsZero():
		return wire.Invalid("stop-time needs a start-time")
	case !t.Stop.After(t.Start):
		return wire.Invalid("stop-time is not after start-time")
	}
	return nil
}

// query is what the query of a request for notifications asks for.
type query struct {
	Times
	filter *xpath.Condition // nil: all (RFC 8040 section 4.8.4)
}

func parseQuery(schema *yang.Schema, r *http.Request) (q query, err error) {
	return q, q.Read(r, func(name, value string) (err error) {
		if name != "filter" {
			return wire.Invalid("a stream has no query parameter " + name + ": want start-time, stop-time or filter")
		}
		if q.filter, err = xpath.Parse(schema, value); err != nil {
			return wire.Invalid("the filter is not understood: " + err.Error())
		}
		return nil
	})
}

// open opens the stream of a key. A client that comes back with the ID of an event goes on
// after that event: start-time is for its first request.
func (q query) open(source Source, key, after string) (Subscription, bool, error) {
	if q.Start.IsZero() || after != "" {
		sub, found := source.Open(key, after)
		return sub, found, nil
	}
	if log, ok := source.(Replayer); ok {
		if _, found := log.Since(key); found {
			return log.OpenAt(key, q.Start), true, nil
		}
	}
	sub, found := source.Open(key, "")
	if !found {
		return nil, false, nil
	}
	sub.Close()
	return nil, true, wire.Invalid("this stream has no replay: leave start-time away, and it begins with all there is")
}
