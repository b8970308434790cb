package restconf

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// challenge is what a 401 asks for. A client certificate has no challenge in HTTP.
const challenge = `Basic realm="coe-bridge", charset="UTF-8"`

// entry is what a part of the routes is for.
type entry uint8

const (
	plain   entry = iota
	asks          // an operation, which POST asks, and which changes nothing
	follows       // a stream, which has a place of another kind than other requests
)

// reads reports whether a request cannot change anything.
func (e entry) reads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return e == asks && r.Method == http.MethodPost
}

// permit refuses what the caller's role does not allow, before anything is looked up. So a
// caller without the right to write does not learn what could be written. The tree decides
// what the agent of a node may do.
func permit(who access.Identity, reads bool) error {
	switch {
	case who.Role >= access.Writer, who.Role == access.Reader && reads, who.Role == access.Node:
		return nil
	case who.Role == access.Reader:
		return forbidden(who.Name + " may read and not write: ask for the role writer")
	}
	return forbidden(who.Name + " is known and has no role here: ask for the role reader or writer")
}

func forbidden(message string) error {
	return wire.NewProblem(http.StatusForbidden, "protocol", "access-denied", message)
}

// refuseEntry answers a caller that is not known. A caller that has failed too often gets a
// Retry-After at once. A delayed answer would hold a connection, and a guesser has more
// connections than this server.
func (s *Server) refuseEntry(w http.ResponseWriter, r *http.Request, err error) {
	if limited, ok := errors.AsType[*access.LimitedError](err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limited.After.Seconds()))))
		s.fail(w, r, dialectOf(r), wire.NewProblem(http.StatusTooManyRequests, "protocol", "access-denied", limited.Says))
		return
	}
	if unjudged, ok := errors.AsType[*access.UnjudgedError](err); ok {
		w.Header().Set("Retry-After", "1")
		s.fail(w, r, dialectOf(r), wire.NewProblem(http.StatusServiceUnavailable, "application", "operation-failed", unjudged.Says))
		return
	}
	says := "give a user and password, a client certificate or an agent's token that this server knows"
	if denied, ok := errors.AsType[*access.DeniedError](err); ok {
		says = denied.Says
	}
	w.Header().Set("WWW-Authenticate", challenge)
	s.fail(w, r, dialectOf(r), wire.NewProblem(http.StatusUnauthorized, "protocol", "access-denied", says))
}

// maxLimited is how often in a row who follows a stream may be found limited: others who
// fail to log in with the same name don't end it, unless they go on.
const maxLimited = 4

// streamCaller is the caller of a request for a stream.
type streamCaller struct {
	*held
	server  *Server
	request *http.Request
	name    string // of the stream
	limited int    // times in a row
}

var _ stream.Caller = (*streamCaller)(nil)

// Ending implements stream.Caller.
func (c *streamCaller) Ending() <-chan struct{} { return endingOf(c.request) }

// MayStay implements stream.Caller. The caller may stay if nobody can judge its credentials
// now, and for a while if they are not judged because of a limit.
func (c *streamCaller) MayStay() bool {
	who, err := c.server.cfg.Auth.Authenticate(c.request)
	if _, limited := errors.AsType[*access.LimitedError](err); limited {
		c.limited++
		return c.limited <= maxLimited
	}
	c.limited = 0
	_, unjudged := errors.AsType[*access.UnjudgedError](err)
	return err == nil && c.may(who) || unjudged
}

// may reports whether the caller, who is this now, may follow the stream.
func (c *streamCaller) may(who access.Identity) bool {
	if caller := callerOf(c.request); caller.Node != "" {
		return who.Node == caller.Node && c.server.tree.MayFollow(caller, c.name) == nil
	}
	return who.Role >= access.Reader
}

// recorder keeps the parts of an answer that the audit log records.
type recorder struct {
	http.ResponseWriter
	status   int
	revision int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// underneath is the server's own writer, which must learn of a body that is too large.
func underneath(w http.ResponseWriter) http.ResponseWriter {
	if r, ok := w.(*recorder); ok {
		return r.ResponseWriter
	}
	return w
}

// noteRevision keeps the revision that a write has made for the audit log.
func noteRevision(w http.ResponseWriter, revision int64) {
	if r, ok := w.(*recorder); ok {
		r.revision = revision
	}
}

// record records the result of a write in the audit log, before its answer is sent.
func (s *Server) record(w *recorder, r *http.Request, who access.Identity) {
	s.cfg.Audit.Record(access.Record{
		Who: who, From: r.RemoteAddr, Method: r.Method, Path: r.URL.EscapedPath(), Status: w.status, Revision: w.revision,
	})
}

// FixedUsers are users and their passwords in clear, for development alone. They
// may do everything.
type FixedUsers map[string]string

var _ access.Authenticator = FixedUsers(nil)

// Authenticate implements access.Authenticator, in a time that does not depend on
// where the password differs.
func (f FixedUsers) Authenticate(r *http.Request) (access.Identity, error) {
	user, password, ok := r.BasicAuth()
	if !ok {
		return access.Identity{}, access.ErrNoCredentials
	}
	want, known := f[user]
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(password))
	if !hmac.Equal(a[:], b[:]) || !known {
		return access.Identity{}, &access.DeniedError{Says: "this server knows no such user with this password"}
	}
	return access.Identity{Name: user, Role: access.Writer, By: access.ByPassword}, nil
}
