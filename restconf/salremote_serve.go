package restconf

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// eventLocation is the URL of a stream's events.
type eventLocation struct {
	XMLName xml.Name `xml:"subscribe:to:notification location"`
	URL     string   `xml:",chardata"`
}

// MarshalJSON implements json.Marshaler: it is a leaf.
func (l eventLocation) MarshalJSON() ([]byte, error) { return json.Marshal(l.URL) }

// serveDataChanges answers a GET of a stream that the operation names: with its events if
// the client asks for them, else with their location.
func (s *Server) serveDataChanges(w http.ResponseWriter, r *http.Request, asked subscription) {
	s.sockets.Add(1)
	defer s.sockets.Done()
	begin := time.Now()
	err := s.dataChanges(w, r, asked)
	if err != nil {
		s.fail(w, r, wire.Draft02, err)
	}
	s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
}

// dataChanges returns an error while nothing is written yet.
func (s *Server) dataChanges(w http.ResponseWriter, r *http.Request, asked subscription) error {
	q, err := parseDataQuery(r)
	if err != nil {
		return err
	}
	sub, err := asked.open(s.changes)
	if err != nil {
		return err
	}
	defer sub.Close()
	upgrades := isUpgrade(r)
	accept := wire.ParseAccept(strings.Join(r.Header.Values("Accept"), ","))
	if r.Method != http.MethodGet || !upgrades && accept[streamMedia] == 0 {
		s.locate(w, r)
		return nil
	}
	ctx, leave, err := s.shares.stream(r.Context(), heldBy(r).who)
	if err != nil {
		return err
	}
	defer leave()
	r = r.WithContext(ctx)
	feed := &comparer{schema: s.cfg.Schema, asked: asked, leaves: q.leaves}
	if err := s.settle(r.Context(), feed, sub); err != nil {
		return err
	}
	if upgrades {
		s.followBySocket(w, r, sub, &dataSink{feed: feed, stop: q.stop})
		return nil
	}
	return s.followByEvents(w, r, sub, &dataSink{feed: feed, stop: q.stop})
}

// locate answers with the URL of the websocket. The URL has a ticket, since clients that
// were written for OpenDaylight send no credentials to websockets.
func (s *Server) locate(w http.ResponseWriter, r *http.Request) {
	at := url.URL{Scheme: "ws", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.EscapedPath()}
	if r.TLS != nil {
		at.Scheme = "wss"
	}
	query := r.URL.Query()
	if r.Method == http.MethodGet {
		query.Set(ticketParameter, s.tickets.issue(r, heldBy(r).who))
	}
	at.RawQuery = query.Encode()
	w.Header().Set("Location", at.String())
	s.servePage(w, r, discovery.Document(wire.Draft02, "location", func() any { return eventLocation{URL: at.String()} }))
}

// settle waits for the first snapshot, so that the client misses nothing after its answer.
func (s *Server) settle(ctx context.Context, feed *comparer, sub stream.Subscription) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := feed.settle(ctx, sub); err != nil {
		return fmt.Errorf("learn what there is: %w", err)
	}
	return nil
}

// dataQuery are OpenDaylight's query parameters of a stream.
type dataQuery struct {
	stop   time.Time
	leaves bool
}

// parseDataQuery reads them. There is no replay, as in OpenDaylight.
func parseDataQuery(r *http.Request) (q dataQuery, err error) {
	values, err := wire.Parameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	times := streamQuery{}
	for name, given := range values {
		switch {
		case len(given) > 1:
			err = wire.Invalid("the query parameter " + name + " is given more than once")
		case name == "start-time":
			times.start, err = parseTime(name, given[0])
		case name == "stop-time":
			times.stop, err = parseTime(name, given[0])
		case name == "odl-leaf-nodes-only":
			q.leaves = strings.EqualFold(given[0], "true")
		case name != ticketParameter:
			err = wire.Invalid("this stream has no query parameter " + name +
				": want start-time, stop-time or odl-leaf-nodes-only; the streams in /rests/streams have filter")
		}
		if err != nil {
			return q, err
		}
	}
	q.stop = times.stop
	return q, times.check(time.Now())
}

// dataSink turns groups of events into messages.
type dataSink struct {
	feed *comparer
	stop time.Time
}

// until is when the stream ends; zero for never.
func (d *dataSink) until() time.Time { return d.stop }

func (d *dataSink) messages(group []stream.Event) ([][]byte, error) {
	events, err := d.feed.take(group)
	if err != nil {
		return nil, err
	}
	return dataMessages(events, d.feed.asked.json, time.Now()), nil
}

// eventSink sends messages as server-sent events.
type eventSink struct {
	*dataSink
	out *eventWriter
}

func (e eventSink) comment() error { return e.out.comment() }

func (e eventSink) events(group []stream.Event) error {
	messages, err := e.messages(group)
	if err != nil {
		return err
	}
	for _, message := range messages {
		e.out.buf.WriteString("data: ")
		e.out.buf.Write(message)
		e.out.buf.WriteString("\n\n")
		if err := e.out.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) followByEvents(w http.ResponseWriter, r *http.Request, sub stream.Subscription, data *dataSink) error {
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if err := out.begin(); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	s.passData(r, sub, eventSink{data, out})
	return nil
}

// passData passes events on until one side ends.
func (s *Server) passData(r *http.Request, sub stream.Subscription, out sink) {
	err := pass(r.Context(), sub, out, endingOf(r), s.stillMay(r, mayReadAll))
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Error("a stream can't be told on", "path", r.URL.Path, "err", err)
	}
}
