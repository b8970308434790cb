package restconf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// DefaultMaxStreams is how many streams users follow at once, unless Config says.
const DefaultMaxStreams = 4096

const (
	streamsPrefix = "/rests/streams/"
	inXMLPrefix   = "xml/" // of a stream's path below streamsPrefix
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
// client goes, ending is closed, or who asks is no more one of those who may.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, d *dialect, rest string, ending <-chan struct{}, may func(access.Identity) bool) {
	begin := time.Now()
	err := s.follow(w, r, rest, ending, may)
	if err != nil {
		s.fail(w, r, d, err)
	}
	s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
}

// follow returns an error while nothing is written yet.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, rest string, ending <-chan struct{}, may func(access.Identity) bool) error {
	if err := checkStreamRequest(w, r); err != nil || r.Method == http.MethodOptions {
		return err
	}
	ctx, leave, err := s.shares.stream(r.Context(), heldBy(r).who)
	if err != nil {
		return err
	}
	defer leave()
	asked, err := parseStreamQuery(s.cfg.Schema, r)
	if err != nil {
		return err
	}
	name, inXML := strings.CutPrefix(rest, inXMLPrefix)
	sub, err := s.openStream(name, r.Header.Get("Last-Event-ID"), asked)
	if err != nil {
		return err
	}
	defer sub.Close()
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", streamMedia)
		return nil
	}
	out := &eventWriter{
		schema: s.cfg.Schema, xml: inXML, filter: asked.filter, stop: asked.stop,
		w: w, control: http.NewResponseController(w),
	}
	if err := out.begin(); err != nil {
		return fmt.Errorf("begin a stream: %w", err)
	}
	if err := pass(ctx, sub, out, ending, s.stillMay(r, may)); err != nil {
		s.log.Error("a stream can't be told on", "path", r.URL.Path, "err", err)
	}
	return nil
}

// checkStreamRequest refuses what is no request for events, and answers OPTIONS.
func checkStreamRequest(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", strings.Join(pageMethods, ", "))
		return nil
	case http.MethodGet, http.MethodHead:
	default:
		p := newProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", r.Method+" is not for a stream: GET it")
		p.allow = pageMethods
		return p
	}
	if accept := strings.Join(r.Header.Values("Accept"), ","); accept != "" && parseAccept(accept).quality(streamMedia) == 0 {
		return newProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+streamMedia)
	}
	return nil
}

func (s *Server) openStream(rest, after string, asked streamQuery) (stream.Subscription, error) {
	name, err := url.PathUnescape(rest)
	kind, key, _ := strings.Cut(name, "=")
	if kind, known := s.kinds[kind]; known && err == nil {
		if sub, found, err := asked.open(kind.Source, key, after); found {
			return sub, err
		}
	}
	return nil, noSuchStream()
}

func noSuchStream() error {
	return newProblem(http.StatusNotFound, "protocol", "invalid-value",
		"there is no such stream: /rests/data/"+monitoringTop+"/streams lists those that there are")
}

// sink is where events go.
type sink interface {
	// events writes a group.
	events(group []stream.Event) error
	// comment writes what means nothing, where that shows a dead connection.
	comment() error
	// until is when no more is wanted; zero for never.
	until() time.Time
}

// pass hands on what the subscription says until one side ends, or the time that
// the client set has come, or the client may read no more, which is asked at each
// beat. It returns an error where an event can't be written as the client wants it.
func pass(ctx context.Context, sub stream.Subscription, out sink, ending <-chan struct{}, mayRead func() bool) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	var stop <-chan time.Time
	if at := out.until(); !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		stop = timer.C
	}
	if out.comment() != nil { // the answer's head goes with it
		return nil
	}
	for {
		if err := out.events(sub.Take()); err != nil {
			return notGone(err)
		}
		select {
		case <-sub.Ready():
		case <-beat.C:
			if !mayRead() || out.comment() != nil {
				return nil
			}
		case <-stop:
			return notGone(out.events(sub.Take()))
		case <-ctx.Done():
			return nil
		case <-ending:
			return nil
		}
	}
}

// notGone is err where it is not that the client is gone, or too slow.
func notGone(err error) error {
	var unwritable *unwritableError
	if errors.As(err, &unwritable) {
		return err
	}
	return nil
}
