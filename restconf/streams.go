package restconf

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// DefaultMaxStreams is how many streams are followed at once, unless Config says.
const DefaultMaxStreams = 4096

const (
	streamsPrefix = "/rests/streams/"
	streamMedia   = "text/event-stream"
	beatEvery     = 15 * time.Second // a comment, so that both ends see a dead connection
	writeTimeout  = 10 * time.Second // for what is written at once
	writeAtOnce   = 32 << 10
)

// Streams are a kind of event streams (RFC 8040 section 6). The name of one is that
// of its kind or, where its key is not empty, "kind=key".
type Streams struct {
	Source stream.Source
	// Description tells clients what the streams say.
	Description string
}

// streamName is the name of a stream in paths and in the list of streams.
func streamName(kind, key string) string {
	if key == "" {
		return kind
	}
	return kind + "=" + key
}

// serveStream follows the stream that rest, the end of the path, names, until the
// client goes or ending is closed.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, rest string, ending <-chan struct{}) {
	begin := time.Now()
	err := s.follow(w, r, rest, ending)
	if err != nil {
		s.fail(w, r, rfc8040, err)
	}
	s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
}

// follow returns an error while nothing is written yet.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, rest string, ending <-chan struct{}) error {
	if err := checkStreamRequest(w, r); err != nil || r.Method == http.MethodOptions {
		return err
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return newProblem(http.StatusServiceUnavailable, "application", "resource-denied", fmt.Sprintf(
			"%d streams are followed already: try another replica, or raise the limit", cap(s.streams)))
	}
	sub, err := s.openStream(rest, r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer sub.Close()
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if err := out.begin(); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	pass(r.Context(), sub, out, ending)
	return nil
}

// checkStreamRequest refuses what is no request for events, and answers OPTIONS.
func checkStreamRequest(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", "OPTIONS, GET")
		return nil
	case http.MethodGet:
	default:
		p := newProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", r.Method+" is not for a stream: GET it")
		p.allow = []string{http.MethodOptions, http.MethodGet}
		return p
	}
	if accept := strings.Join(r.Header.Values("Accept"), ","); accept != "" && parseAccept(accept).quality(streamMedia) == 0 {
		return newProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+streamMedia)
	}
	if r.URL.RawQuery != "" {
		return badQuery("a stream has no query parameters: the header Last-Event-ID says where to go on")
	}
	return nil
}

func (s *Server) openStream(rest, after string) (stream.Subscription, error) {
	name, err := url.PathUnescape(rest)
	kind, key, _ := strings.Cut(name, "=")
	if kind, known := s.cfg.Streams[kind]; known && err == nil {
		if sub, found := kind.Source.Open(key, after); found {
			return sub, nil
		}
	}
	return nil, newProblem(http.StatusNotFound, "protocol", "invalid-value",
		"there is no such stream: /rests/data/"+monitoringTop+"/streams lists those that there are")
}

// pass hands on what the subscription says until one side ends.
func pass(ctx context.Context, sub stream.Subscription, out *eventWriter, ending <-chan struct{}) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	if out.comment() != nil { // the answer's head goes with it
		return
	}
	for {
		if out.events(sub.Take()) != nil {
			return // the client is gone, or too slow
		}
		select {
		case <-sub.Ready():
		case <-beat.C:
			if out.comment() != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-ending:
			return
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

// begin answers the request. The bounds of a connection are for requests that come
// to an end; here each write has its own.
func (o *eventWriter) begin() error {
	if err := o.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	h := o.w.Header()
	h.Set("Content-Type", streamMedia)
	h.Set("Cache-Control", "no-store")
	o.w.WriteHeader(http.StatusOK)
	return nil
}

// comment writes what means nothing.
func (o *eventWriter) comment() error {
	o.buf.WriteString(":\n\n")
	return o.flush()
}

func (o *eventWriter) events(events []stream.Event) error {
	for _, e := range events {
		o.event(e)
		if o.buf.Len() >= writeAtOnce {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	if o.buf.Len() == 0 {
		return nil
	}
	return o.flush()
}

// event is a notification as RFC 8040 section 6.4 has it.
func (o *eventWriter) event(e stream.Event) {
	if e.ID != "" {
		o.buf.WriteString("id: " + e.ID + "\n")
	}
	o.buf.WriteString(`data: {"ietf-restconf:notification":{"eventTime":"`)
	o.buf.Write(e.Time.UTC().AppendFormat(o.buf.AvailableBuffer(), time.RFC3339Nano))
	o.buf.WriteString(`","` + e.Name + `":`)
	o.buf.Write(e.Content)
	o.buf.WriteString("}}\n\n")
}

// flush sends what is written, or fails when the client does not take it in time.
func (o *eventWriter) flush() error {
	defer o.buf.Reset()
	if err := o.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := o.w.Write(o.buf.Bytes()); err != nil {
		return err
	}
	return o.control.Flush()
}
