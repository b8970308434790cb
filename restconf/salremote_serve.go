package restconf

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/changes"
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
// the client asks for them, else with their location. It returns an error as stream.Server does.
func (s *Server) serveDataChanges(w http.ResponseWriter, r *http.Request, name string, c stream.Caller) error {
	asked, err := parseSubscription(s.cfg.Schema, name)
	if err != nil {
		return err
	}
	times, leaves, err := parseDataQuery(r)
	if err != nil {
		return err
	}
	all, _ := s.streams.Kinds[changes.Kind].Source.(stream.Replayer)
	sub, err := asked.open(all)
	if err != nil {
		return err
	}
	defer sub.Close()
	upgrades := isUpgrade(r)
	accept := wire.ParseAccept(strings.Join(r.Header.Values("Accept"), ","))
	if r.Method != http.MethodGet || !upgrades && accept[stream.Media] == 0 {
		return s.locate(w, r, c)
	}
	ctx, leave, err := c.Place(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	data := &dataSink{&comparer{schema: s.cfg.Schema, asked: asked, leaves: leaves}, times.Stop}
	if err := s.settle(ctx, data.feed, sub); err != nil {
		return err
	}
	if upgrades {
		return s.followBySocket(ctx, w, r, sub, data, c)
	}
	out, err := stream.NewWriter(w)
	if err != nil {
		return err
	}
	return stream.Pass(ctx, sub, eventSink{data, out}, c)
}

// locate answers with the URL of the websocket. The URL has a ticket, since clients that
// were written for OpenDaylight send no credentials to websockets.
func (s *Server) locate(w http.ResponseWriter, r *http.Request, c stream.Caller) error {
	at := url.URL{Scheme: "ws", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.EscapedPath()}
	if r.TLS != nil {
		at.Scheme = "wss"
	}
	query := r.URL.Query()
	if r.Method == http.MethodGet {
		query.Set(ticketParameter, s.tickets.issue(r, c.Name()))
	}
	at.RawQuery = query.Encode()
	w.Header().Set("Location", at.String())
	return discovery.Document(wire.Draft02, "location", func() any { return eventLocation{URL: at.String()} }).Serve(w, r)
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

// parseDataQuery reads OpenDaylight's query parameters of a stream. There is no replay, as in
// OpenDaylight.
func parseDataQuery(r *http.Request) (times stream.Times, leaves bool, err error) {
	err = times.Read(r, func(name, value string) error {
		switch name {
		case "odl-leaf-nodes-only":
			leaves = strings.EqualFold(value, "true")
		case ticketParameter:
		default:
			return wire.Invalid("this stream has no query parameter " + name +
				": want start-time, stop-time or odl-leaf-nodes-only; the streams in /rests/streams have filter")
		}
		return nil
	})
	return times, leaves, err
}

// dataSink turns groups of events into messages.
type dataSink struct {
	feed *comparer
	stop time.Time
}

// Until implements stream.Sink.
func (d *dataSink) Until() time.Time { return d.stop }

func (d *dataSink) messages(group []stream.Event) ([][]byte, error) {
	events, err := d.feed.take(group)
	if err != nil {
		return nil, &stream.UnwritableError{Err: err}
	}
	return dataMessages(events, d.feed.asked.json, time.Now()), nil
}

// eventSink sends messages as server-sent events.
type eventSink struct {
	*dataSink
	*stream.Writer
}

// Events implements stream.Sink.
func (e eventSink) Events(group []stream.Event) error {
	messages, err := e.messages(group)
	for _, message := range messages {
		if err = e.Send(message); err != nil {
			break
		}
	}
	return err
}
