package restconf

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/yang"
)

// request is one request to a tree.
type request struct {
	http    *http.Request
	tree    tree
	dialect *dialect
	target  target
	query   query
}

// wantsState tells whether the answer has operational state.
func (q *request) wantsState() bool {
	return !q.tree.config || (!q.dialect.draft && q.query.content != "config")
}

// serveTree answers all requests below a tree's prefix.
func (s *Server) serveTree(at tree) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		q := &request{http: r, tree: at, dialect: at.dialect}
		err := s.serve(w, q)
		if err != nil {
			s.fail(w, r, at.dialect, err)
		}
		if s.log.Enabled(r.Context(), slog.LevelDebug) {
			s.log.Debug("request", "method", r.Method, "path", r.URL.Path, "took", time.Since(begin), "err", err)
		}
	}
}

func (s *Server) serve(w http.ResponseWriter, q *request) error {
	rest := strings.TrimPrefix(q.http.URL.EscapedPath(), q.tree.prefix)
	if rest != "" && rest[0] != '/' {
		s.notFound(w, q.http)
		return nil
	}
	var err error
	if q.target, err = q.dialect.parse(s.cfg.Schema, rest); err != nil {
		return err
	}
	if err := s.confine(q); err != nil {
		return err
	}
	if err := s.allow(w, q); err != nil {
		return err
	}
	if q.query, err = q.dialect.parseQuery(q.http); err != nil {
		return err
	}
	if q.tree.content != "" {
		q.query.content = q.tree.content
	}
	switch q.http.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusOK)
		return nil
	case http.MethodGet, http.MethodHead:
		return s.get(w, q)
	}
	return s.write(w, q)
}

// allow refuses a method that the target does not have, and tells OPTIONS which
// it has.
func (s *Server) allow(w http.ResponseWriter, q *request) error {
	methods := s.methods(q)
	if q.http.Method == http.MethodOptions {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		if slices.Contains(methods, http.MethodPatch) {
			w.Header().Set("Accept-Patch", q.dialect.patches)
		}
		return nil
	}
	if slices.Contains(methods, q.http.Method) {
		return nil
	}
	if q.http.Method == http.MethodPatch && q.dialect.patches == "" {
		return newProblem(http.StatusUnsupportedMediaType, "protocol", "operation-not-supported",
			"PATCH is for RFC 8040: use /rests/data, or PUT")
	}
	return s.notAllowed(q, q.target.path(), s.whyNot(q))
}

// notAllowed is a 405 because of what is at path.
func (s *Server) notAllowed(q *request, path, message string) error {
	p := newProblem(http.StatusMethodNotAllowed, "protocol", "operation-not-supported", message)
	p.errors[0].Path = path
	p.allow = s.methods(q)
	return p
}

// methods are what the target can be asked.
func (s *Server) methods(q *request) []string {
	methods := []string{http.MethodOptions, http.MethodHead, http.MethodGet}
	switch {
	case !q.tree.config:
		return methods
	case q.target.isRoot():
		methods = append(methods, http.MethodPost)
		if q.dialect.patches != "" {
			methods = append(methods, http.MethodPut, http.MethodPatch)
		}
		return methods
	case !s.writable(q.target.node()) || q.target.last().isList():
		return methods
	case !isLeaf(q.target.node()):
		methods = append(methods, http.MethodPost)
	}
	methods = append(methods, http.MethodPut, http.MethodDelete)
	if q.dialect.patches != "" {
		methods = append(methods, http.MethodPatch)
	}
	return methods
}

// writable tells whether clients may write instances of n.
func (s *Server) writable(n *yang.Node) bool {
	_, fixed := s.readOnly[n.Top()]
	return !fixed && n.Config
}

// whyNot explains a 405.
func (s *Server) whyNot(q *request) string {
	method, t := q.http.Method, q.target
	switch {
	case t.isRoot():
		return method + " is not for the whole datastore"
	case s.readOnly[t.top()].Says != "":
		return s.comesFrom(t.top())
	case !q.tree.config:
		return "the operational tree is read-only: write to the config tree"
	case !t.node().Config:
		return t.node().Name + " is state, which only this server writes"
	case t.last().isList() && t.node().Kind == yang.List && len(t.node().Keys) == 0:
		return method + " is not for the list " + t.node().Name + ", whose entries have no key: write what holds it"
	case t.last().isList():
		return method + " is for one entry of the list " + t.node().Name + ": give its key"
	}
	return method + " is not for " + t.node().Name
}

// comesFrom tells who tries to write a read-only tree where its data come from.
func (s *Server) comesFrom(top *yang.Node) string {
	return stepsTo(top).path() + " is read-only: " + s.readOnly[top].Says
}
