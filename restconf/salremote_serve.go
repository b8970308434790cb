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

	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// eventLocation tells where a stream's events are.
type eventLocation struct {
	XMLName xml.Name `xml:"subscribe:to:notification location"`
	URL     string   `xml:",chardata"`
}

// MarshalJSON implements json.Marshaler: it is a leaf.
func (l eventLocation) MarshalJSON() ([]byte, error) { return json.Marshal(l.URL) }

// serveDataChanges answers a GET of a stream that the operation names: with its events,
// where the client asks for those, or else with where they are.
func (s *Server) serveDataChanges(w http.ResponseWriter, r *http.Request, asked subscription, ending <-chan struct{}) {
	s.sockets.Add(1)
	defer s.sockets.Done()
	begin := time.Now()
	err := s.dataChanges(w, r, asked, ending)
	if err != nil {
		s.fail(w, r, draft02, err)
	}
	s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
}

// dataChanges returns an error while nothing is written yet.
func (s *Server) dataChanges(w http.ResponseWriter, r *http.Request, asked subscription, ending <-chan struct{}) error {
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
	accept := parseAccept(strings.Join(r.Header.Values("Accept"), ","))
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
		s.followBySocket(w, r, sub, &dataSink{feed: feed, stop: q.stop}, ending)
		return nil
	}
	return s.followByEvents(w, r, sub, &dataSink{feed: feed, stop: q.stop}, ending)
}

// locate answers with the URL of the websocket. It has a ticket, as who was written for
// OpenDaylight has no credentials for websockets.
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
	s.servePage(w, r, documentPage(draft02, "location", func() any { return eventLocation{URL: at.String()} }))
}

// settle waits until it is known what there is, so that the client, once it is
// answered, misses nothing.
func (s *Server) settle(ctx context.Context, feed *comparer, sub stream.Subscription) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := feed.settle(ctx, sub); err != nil {
		return fmt.Errorf("learn what there is: %w", err)
	}
	return nil
}

// dataQuery is what OpenDaylight's query parameters of a stream ask for.
type dataQuery struct {
	stop   time.Time
	leaves bool
}

// parseDataQuery reads them. There is no replay: as in OpenDaylight, events come from
// when they are followed on.
func parseDataQuery(r *http.Request) (q dataQuery, err error) {
	values, err := parameters(r.URL.RawQuery)
	if err != nil {
		return q, err
	}
	times := streamQuery{}
	for name, given := range values {
		switch {
		case len(given) > 1:
			err = badQuery("the query parameter " + name + " is given more than once")
		case name == "start-time":
			times.start, err = parseTime(name, given[0])
		case name == "stop-time":
			times.stop, err = parseTime(name, given[0])
		case name == "odl-leaf-nodes-only":
			q.leaves = strings.EqualFold(given[0], "true")
		case name != ticketParameter:
			err = badQuery("this stream has no query parameter " + name +
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

func (s *Server) followByEvents(w http.ResponseWriter, r *http.Request, sub stream.Subscription, data *dataSink, ending <-chan struct{}) error {
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if err := out.begin(); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	s.passData(r, sub, eventSink{data, out}, ending)
	return nil
}

// passData hands events on until one side ends.
func (s *Server) passData(r *http.Request, sub stream.Subscription, out sink, ending <-chan struct{}) {
	err := pass(r.Context(), sub, out, ending, s.stillMay(r, mayReadAll))
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Error("a stream can't be told on", "path", r.URL.Path, "err", err)
	}
}
