package salremote

import (
	"encoding/json"
	"encoding/xml"
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

// Serve answers a GET of a stream. The answer has the events if the client asks for them, or else their
// location. Serve returns errors like stream.Server.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, name string, c stream.Caller) error {
	asked, err := parseSubscription(s.schema, name)
	if err != nil {
		return err
	}
	times, leaves, err := parseDataQuery(r)
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
	if r.Method != http.MethodGet || !upgrades && accept[stream.Media] == 0 {
		return s.locate(w, r, c)
	}
	ctx, leave, err := c.Place(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	data := &dataSink{feed: &comparer{schema: s.schema, asked: asked, leaves: leaves}, stop: times.Stop}
	if err := data.feed.settle(ctx, sub, s.timeout); err != nil {
		return err
	}
	if upgrades {
		return s.follow(ctx, w, r, sub, data, c)
	}
	if data.connection, err = stream.NewWriter(w); err != nil {
		return err
	}
	return stream.Pass(ctx, sub, data, c)
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
		query.Set(ticketParameter, s.issue(r, c.Name()))
	}
	at.RawQuery = query.Encode()
	w.Header().Set("Location", at.String())
	return discovery.Document(wire.Draft02, "location", func() any { return eventLocation{URL: at.String()} }).Serve(w, r)
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

// connection sends messages to a client.
type connection interface {
	Send(message []byte) error
	Comment() error
}

// dataSink sends groups of events as messages.
type dataSink struct {
	connection
	feed *comparer
	stop time.Time
}

// Until implements stream.Sink.
func (d *dataSink) Until() time.Time { return d.stop }

// Events implements stream.Sink.
func (d *dataSink) Events(group []stream.Event) error {
	events, err := d.feed.take(group)
	if err != nil {
		return &stream.UnwritableError{Err: err}
	}
	for _, message := range dataMessages(events, d.feed.asked.json, time.Now()) {
		if err := d.Send(message); err != nil {
			return err
		}
	}
	return nil
}
