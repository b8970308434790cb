package restconf

import (
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/restconf/xpath"
	"github.com/coe-bridge/coe-bridge/yang"
)

// streamQuery is what a stream's query parameters ask for (RFC 8040 sections
// 4.8.4, 4.8.7 and 4.8.8).
type streamQuery struct {
	start, stop time.Time        // zero: not asked for
	filter      *xpath.Condition // nil: all
}

// parseStreamQuery reads the parameters of a request for events.
func parseStreamQuery(schema *yang.Schema, r *http.Request) (q streamQuery, err error) {
	values, err := wire.Parameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	for name, given := range values {
		if len(given) > 1 {
			return q, wire.Invalid("the query parameter " + name + " is given more than once")
		}
		switch name {
		case "start-time":
			q.start, err = parseTime(name, given[0])
		case "stop-time":
			q.stop, err = parseTime(name, given[0])
		case "filter":
			if q.filter, err = xpath.Parse(schema, given[0]); err != nil {
				err = wire.Invalid("the filter is not understood: " + err.Error())
			}
		default:
			err = wire.Invalid("a stream has no query parameter " + name + ": want start-time, stop-time or filter")
		}
		if err != nil {
			return q, err
		}
	}
	return q, q.check(time.Now())
}

func parseTime(name, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, wire.Invalid(name + " has to be a date and time as in 2026-11-21T10:00:00Z")
	}
	return at, nil
}

func (q streamQuery) check(now time.Time) error {
	switch {
	case q.start.After(now):
		return wire.Invalid("start-time is in the future")
	case q.stop.IsZero():
		return nil
	case q.start.IsZero():
		return wire.Invalid("stop-time needs a start-time")
	case !q.stop.After(q.start):
		return wire.Invalid("stop-time is not after start-time")
	}
	return nil
}

// open opens the stream of a key. A client that comes back with the ID of an event goes on
// after that event: start-time is for its first request.
func (q streamQuery) open(source stream.Source, key, after string) (stream.Subscription, bool, error) {
	if q.start.IsZero() || after != "" {
		sub, found := source.Open(key, after)
		return sub, found, nil
	}
	if log, ok := source.(stream.Replayer); ok {
		if _, found := log.Since(key); found {
			return log.OpenAt(key, q.start), true, nil
		}
	}
	sub, found := source.Open(key, "")
	if !found {
		return nil, false, nil
	}
	sub.Close()
	return nil, true, wire.Invalid("this stream has no replay: leave start-time away, and it begins with all there is")
}
