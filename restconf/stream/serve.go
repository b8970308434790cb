package stream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// The paths of streams. A name after InXML asks for XML.
const (
	Prefix = "/rests/streams/"
	InXML  = "xml/"
)

// Beat is how often a comment is sent, so that both ends see a dead connection.
const Beat = 15 * time.Second

// Kind is a kind of streams (RFC 8040 section 6). The name of a stream is that of its kind
// or, if its key is not empty, "kind=key".
type Kind struct {
	Source Source
	// Description tells clients what the streams are about.
	Description string
}

// Caller is who makes a request for a stream, and may follow it.
type Caller interface {
	// Name is the same in all requests of one user.
	Name() string
	// Place takes a place among the streams until leave is called. The stream ends with the
	// context that is returned.
	Place(ctx context.Context) (_ context.Context, leave func(), err error)
	// MayStay reports whether the caller may still follow the stream: its credentials may
	// have been revoked.
	MayStay() bool
	// Ending is closed when the server ends.
	Ending() <-chan struct{}
}

// UnwritableError is the error of an event that cannot be written, after the answer has begun.
type UnwritableError struct{ Err error }

// Error implements error.
func (e *UnwritableError) Error() string { return e.Err.Error() }

// Server serves the streams of kinds as server-sent events.
type Server struct {
	Schema *yang.Schema
	Kinds  map[string]Kind
}

// Serve follows the stream with a name, as it is in the path. It ends when the client goes,
// when the server ends, or when the client may no longer follow it. It returns an error
// while nothing is written yet, or an UnwritableError.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, name string, c Caller) error {
	if done, err := wire.Methods(w, r, r.Method+" is not for a stream: GET it", wire.ReadMethods...); done {
		return err
	}
	if accept := strings.Join(r.Header.Values("Accept"), ","); accept != "" && wire.ParseAccept(accept).Quality(Media) == 0 {
		return wire.NewProblem(http.StatusNotAcceptable, "protocol", "invalid-value", "Accept has to allow "+Media)
	}
	ctx, leave, err := c.Place(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	asked, err := parseQuery(s.Schema, r)
	if err != nil {
		return err
	}
	name, inXML := strings.CutPrefix(name, InXML)
	sub, err := s.open(name, r.Header.Get("Last-Event-ID"), asked)
	if err != nil {
		return err
	}
	defer sub.Close()
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", Media)
		return nil
	}
	out, err := NewWriter(w)
	if err != nil {
		return err
	}
	return Pass(ctx, sub, &notifications{out, s.Schema, inXML, asked.filter, asked.Stop}, c)
}

func (s *Server) open(name, after string, asked query) (Subscription, error) {
	name, err := url.PathUnescape(name)
	kind, key, _ := strings.Cut(name, "=")
	if kind, known := s.Kinds[kind]; known && err == nil {
		if sub, found, err := asked.open(kind.Source, key, after); found {
			return sub, err
		}
	}
	return nil, NoSuch()
}

// NoSuch is the error of a stream that does not exist.
func NoSuch() error {
	return wire.NewProblem(http.StatusNotFound, "protocol", "invalid-value",
		"there is no such stream: /rests/data/ietf-restconf-monitoring:restconf-state/streams lists those that there are")
}

// Sink takes events.
type Sink interface {
	// Events writes a group.
	Events(group []Event) error
	// Comment writes a comment, which shows a dead connection.
	Comment() error
	// Until is when the stream ends; zero for never.
	Until() time.Time
}

// Pass passes events on until one side ends, the time Until has come, or the caller must not
// stay, which Pass checks at each Beat. It returns an UnwritableError if an event cannot be
// written, and no other error.
func Pass(ctx context.Context, sub Subscription, out Sink, c Caller) error {
	beat := time.NewTicker(Beat)
	defer beat.Stop()
	var stop <-chan time.Time
	if at := out.Until(); !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		stop = timer.C
	}
	if out.Comment() != nil { // the answer's head goes with it
		return nil
	}
	for {
		if err := out.Events(sub.Take()); err != nil {
			return notGone(err)
		}
		select {
		case <-sub.Ready():
		case <-beat.C:
			if !c.MayStay() || out.Comment() != nil {
				return nil
			}
		case <-stop:
			return notGone(out.Events(sub.Take()))
		case <-ctx.Done():
			return nil
		case <-c.Ending():
			return nil
		}
	}
}

// notGone is err unless the client is gone, or too slow.
func notGone(err error) error {
	if _, unwritable := errors.AsType[*UnwritableError](err); unwritable {
		return err
	}
	return nil
}
