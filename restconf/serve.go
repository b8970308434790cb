package restconf

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// request is one request to a tree.
type request struct {
	http    *http.Request
	root    root
	dialect *wire.Dialect
	caller  tree.Caller
	target  tree.Target
	query   wire.Query
}

// serveTree answers all requests below a root's prefix. The tree decides what an agent may
// do there.
func (s *Server) serveTree(at root) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		q := &request{http: r, root: at, dialect: at.dialect, caller: callerOf(r)}
		if q.caller.Node != "" && q.reads() {
			reads := &heldBy(r).share.reads
			reads.Lock()
			defer reads.Unlock()
		}
		err := s.serve(w, q)
		if err != nil {
			err = s.refused(q, err)
			s.fail(w, r, at.dialect, err)
		}
		if s.log.Enabled(r.Context(), slog.LevelDebug) {
			s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "took", time.Since(begin), "err", err)
		}
	}
}

func (s *Server) serve(w http.ResponseWriter, q *request) error {
	rest := strings.TrimPrefix(q.http.URL.EscapedPath(), q.root.prefix)
	if rest != "" && rest[0] != '/' {
		s.forUsers(s.notFound)(w, q.http)
		return nil
	}
	var err error
	if q.target, err = q.dialect.Parse(s.cfg.Schema, rest); err != nil {
		return err
	}
	if q.reads() {
		err = s.tree.MayRead(q.caller, q.target)
	} else {
		err = s.tree.MayEdit(q.caller, q.op(), q.target)
	}
	if err != nil {
		return err
	}
	if err := s.allow(w, q); err != nil {
		return err
	}
	if q.query, err = q.dialect.ParseQuery(q.http); err != nil {
		return err
	}
	switch {
	case q.http.Method == http.MethodOptions:
		w.WriteHeader(http.StatusOK)
		return nil
	case q.reads():
		return s.get(w, q)
	}
	return s.write(w, q)
}

func (q *request) reads() bool {
	return q.http.Method == http.MethodGet || q.http.Method == http.MethodHead
}

// ops are the operations of methods (RFC 8072 section 2.5). A plain PATCH makes nothing
// (RFC 8040 section 4.6.1).
var ops = map[string]tree.Op{
	http.MethodPost:   tree.Create,
	http.MethodPut:    tree.Replace,
	http.MethodPatch:  tree.Update,
	http.MethodDelete: tree.Delete,
}

// op is the operation of a plain request; 0 if it has none. An agent's request with a
// query has none either: the parameters of writes change what is written.
func (q *request) op() tree.Op {
	if q.caller.Node != "" && q.http.URL.RawQuery != "" {
		return 0
	}
	return ops[q.http.Method]
}

// allow refuses a method that the target does not have, and answers OPTIONS with the methods
// that it has.
func (s *Server) allow(w http.ResponseWriter, q *request) error {
	if q.reads() {
		return nil
	}
	methods := s.methods(q)
	if q.http.Method == http.MethodOptions {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		if slices.Contains(methods, http.MethodPatch) {
			w.Header().Set("Accept-Patch", q.dialect.Patches)
		}
		return nil
	}
	if slices.Contains(methods, q.http.Method) {
		return nil
	}
	if q.http.Method == http.MethodPatch && q.dialect.Patches == "" {
		return wire.NewProblem(http.StatusUnsupportedMediaType, "protocol", "operation-not-supported",
			"PATCH is for RFC 8040: use /rests/data, or PUT")
	}
	return s.notAllowed(q)
}

// notAllowed is the 405 of a request.
func (s *Server) notAllowed(q *request) *wire.Problem {
	method, message := q.http.Method, ""
	err := s.tree.Editable(q.op(), q.target, method)
	switch {
	case q.target.IsRoot():
		message = method + " is not for the whole datastore"
	case q.root.part == tree.PartOperational && !s.tree.IsReadOnly(q.target.Top()):
		message = "the operational tree is read-only: write to the config tree"
	case err != nil:
		message = err.Error()
	default:
		message = method + " is not for " + q.target.Node().Name
	}
	return wire.NotAllowed(message, s.methods(q)...).At(q.target.Path())
}

// refused completes the error of a request.
func (s *Server) refused(q *request, err error) error {
	var (
		fixed  *tree.NotEditableError
		denied *tree.DeniedError
	)
	switch {
	case errors.As(err, &fixed):
		p := wire.ProblemOf(err)
		p.Allow = s.methods(q)
		return p
	case errors.As(err, &denied) && denied.Full:
		s.cfg.Limited(LimitPods)
	}
	return err
}

// methods are the methods that the target has.
func (s *Server) methods(q *request) []string {
	methods := []string{http.MethodOptions, http.MethodHead, http.MethodGet}
	if q.root.part == tree.PartOperational {
		return methods
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		unknown := q.dialect.Draft && (method == http.MethodPatch || method == http.MethodPut && q.target.IsRoot())
		if !unknown && s.tree.Editable(ops[method], q.target, method) == nil {
			methods = append(methods, method)
		}
	}
	return methods
}
