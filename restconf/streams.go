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
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// DefaultMaxStreams is the default of Config.MaxStreams.
const DefaultMaxStreams = 4096

const (
	draftStreamsPrefix = "/restconf/streams/stream/"
	streamMedia        = "text/event-stream"
	beatEvery          = 15 * time.Second // a comment, so that both ends see a dead connection
	writeTimeout       = 10 * time.Second // for what is written at once
	writeAtOnce        = 32 << 10
)

// serveStreams serves the streams of RFC 8040.
func (s *Server) serveStreams(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.EscapedPath(), discovery.StreamsPrefix)
	caller := callerOf(r)
	if err := s.tree.MayFollow(caller, name); err != nil {
		s.fail(w, r, wire.RFC8040, err)
		return
	}
	may := mayReadAll
	if caller.Node != "" {
		may = func(who access.Identity) bool {
			return who.Node == caller.Node && s.tree.MayFollow(caller, name) == nil
		}
	}
	s.serveStream(w, r, wire.RFC8040, name, may)
}

// serveStream follows the stream that rest, the end of the path, names. It ends when the
// client goes, when the server ends, or when the client may no longer follow it.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, d *wire.Dialect, rest string, may func(access.Identity) bool) {
	begin := time.Now()
	err := s.follow(w, r, rest, may)
	if err != nil {
		s.fail(w, r, d, err)
	}
	s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
}

// follow returns an error while nothing is written yet.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, rest string, may func(access.Identity) bool) error {
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
	name, inXML := strings.CutPrefix(rest, discovery.InXMLPrefix)
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
	if err := pass(ctx, sub, out, endingOf(r), s.stillMay(r, may)); err != nil {
		s.log.Error("a stream can't be told on", "path", r.URL.Path, "err", err)
	}
	return nil
}

// checkStreamRequest refuses a request that is not for events, and answers OPTIONS.
func checkStreamRequest(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", strings.Join(discovery.Methods, ", "))
		return nil
	case http.MethodGet, http.MethodHead:
	default:
		p := wire.NewProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", r.Method+" is not for a stream: GET it")
		p.Allow = discovery.Methods
		return p
	}
	if accept := strings.Join(r.Header.Values("Accept"), ","); accept != "" && wire.ParseAccept(accept).Quality(streamMedia) == 0 {
		return wire.NewProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+streamMedia)
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
	return wire.NewProblem(http.StatusNotFound, "protocol", "invalid-value",
		"there is no such stream: /rests/data/"+discovery.MonitoringTop+"/streams lists those that there are")
}

// sink takes events.
type sink interface {
	// events writes a group.
	events(group []stream.Event) error
	// comment writes a comment, which shows a dead connection.
	comment() error
	// until is when the stream ends; zero for never.
	until() time.Time
}

// pass passes events on until one side ends, or the client's time has come, or the client
// may not read any more, which is checked at each beat. It returns an error if an event
// cannot be written.
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

// notGone is err unless the client is gone, or too slow.
func notGone(err error) error {
	var unwritable *unwritableError
	if errors.As(err, &unwritable) {
		return err
	}
	return nil
}

// serveDraftStream answers for one stream of draft-02, or follows its events.
func (s *Server) serveDraftStream(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimRight(strings.TrimPrefix(r.URL.EscapedPath(), draftStreamsPrefix), "/")
	if name, ok := strings.CutSuffix(rest, "/events"); ok {
		s.serveStream(w, r, wire.Draft02, name, mayReadAll)
		return
	}
	asked, ok, err := parseSubscription(s.cfg.Schema, rest)
	switch {
	case err != nil:
		s.fail(w, r, wire.Draft02, err)
		return
	case ok:
		s.serveDataChanges(w, r, asked)
		return
	}
	if name, err := url.PathUnescape(rest); err == nil {
		if p, ok := discovery.DraftStream(s.kinds, name); ok {
			s.servePage(w, r, p)
			return
		}
	}
	s.fail(w, r, wire.Draft02, noSuchStream())
}
