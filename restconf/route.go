package restconf

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	datastoresPrefix   = "/rests/ds/" // before the names of datastores (RFC 8527)
	draftStreamsPrefix = "/restconf/streams/stream/"
)

// root is a place where the tree is served.
type root struct {
	prefix  string
	dialect *wire.Dialect
	part    tree.Part // PartAll: the query parameter content says
}

// dataRoot is the root for agents, too.
var dataRoot = root{prefix: "/rests/data", dialect: wire.RFC8040}

var roots = []root{
	{prefix: "/restconf/config", dialect: wire.Draft02, part: tree.PartConfig},
	{prefix: "/restconf/operational", dialect: wire.Draft02, part: tree.PartOperational},
	{prefix: "/restconf/data", dialect: wire.RFC8040},
	{prefix: datastoresPrefix + "ietf-datastores:running", dialect: wire.NMDA, part: tree.PartConfig},
	{prefix: datastoresPrefix + "ietf-datastores:operational", dialect: wire.NMDA, part: tree.PartOperational},
}

// routes is the table of all that is served. Paths are matched as they were sent: a key may
// hold an encoded slash.
func (s *Server) routes() *mux.Router {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for path, open := range s.cfg.Open {
		router.Path(path).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connOf(r).answerStranger(w, func() { open.ServeHTTP(w, r) })
		})
	}

	streams := router.NewRoute().Subrouter()
	streams.Use(s.enter(follows))
	streams.Path(stream.Prefix + "{name:.*}").HandlerFunc(s.follow(s.streams.Serve))
	streams.Path(draftStreamsPrefix + "{name:.*}/events{end:/*}").HandlerFunc(s.forUsers(s.follow(s.streams.Serve)))
	for i, e := range s.extensions {
		o := s.operations[i]
		router.Path(draftStreamsPrefix + "{name:" + o.Streams + ".*}").HandlerFunc(redeem(e, s.enter(follows)(s.forUsers(s.follow(e.Serve)))))
		router.MatcherFunc(isCall(o)).Handler(s.enter(asks)(s.forUsers(s.call(e))))
	}

	rest := router.NewRoute().Subrouter()
	rest.Use(s.enter(plain))
	rest.PathPrefix(dataRoot.prefix).HandlerFunc(s.serveTree(dataRoot))
	for _, at := range roots {
		rest.PathPrefix(at.prefix).HandlerFunc(s.forUsers(s.serveTree(at)))
	}
	rest.Path(draftStreamsPrefix + "{name:.*}").HandlerFunc(s.forUsers(s.serveDraftStream))
	documents := s.documents()
	isDocument := func(r *http.Request, _ *mux.RouteMatch) bool { return documents[documentPath(r)] != nil }
	rest.MatcherFunc(isDocument).HandlerFunc(s.forUsers(func(w http.ResponseWriter, r *http.Request) {
		documents[documentPath(r)](w, r)
	}))
	rest.PathPrefix("").HandlerFunc(s.forUsers(s.notFound))
	return router
}

// documents are the resources beside the trees, by path.
func (s *Server) documents() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{}
	for path, p := range discovery.Pages(s.modules, s.operations, s.streams.Kinds) {
		all[path] = func(w http.ResponseWriter, r *http.Request) { s.servePage(w, r, p) }
	}
	maps.Copy(all, s.documentation())
	return all
}

// documentPath is a path without slashes at its end.
func documentPath(r *http.Request) string { return strings.TrimRight(r.URL.EscapedPath(), "/") }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.router.ServeHTTP(w, withPlainDatastore(withoutEmptySegments(r)))
}

// enter lets a request through if its caller is known, has the role for it, and is within
// its share. Nothing else is looked at before.
func (s *Server) enter(at entry) mux.MiddlewareFunc {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Cache-Control"] = noStore
			who, err := s.cfg.Auth.Authenticate(r)
			if err != nil {
				connOf(r).answerStranger(w, func() { s.refuseEntry(w, r, err) })
				return
			}
			connOf(r).authenticated()
			if s.cfg.Audit != nil && !at.reads(r) {
				recorded := &recorder{ResponseWriter: w}
				defer s.record(recorded, r, who)
				w = recorded
			}
			if err = permit(who, at.reads(r)); err == nil {
				err = s.admit(w, r, who, at, next)
			}
			if err != nil {
				s.fail(w, r, dialectOf(r), err)
			}
		})
	}
}

// admit serves a request within the share of its caller.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, who access.Identity, at entry, next http.Handler) error {
	h, err := s.shares.enter(r.Context(), holderOf(who))
	if err != nil {
		return err
	}
	leave := sync.OnceFunc(h.leave)
	defer leave()
	if at == follows {
		leave()
	}
	if at == follows || !at.reads(r) || who.Role == access.Node {
		r = h.with(r)
	}
	next.ServeHTTP(w, r)
	return nil
}

// forUsers refuses agents.
func (s *Server) forUsers(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if caller := callerOf(r); caller.Node != "" {
			s.fail(w, r, dialectOf(r), caller.Denied())
			return
		}
		serve(w, r)
	}
}

// follow serves streams by serve, to callers who may follow them.
func (s *Server) follow(serve func(w http.ResponseWriter, r *http.Request, name string, c stream.Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.following.Add(1)
		defer s.following.Done()
		begin, c := time.Now(), &streamCaller{held: heldBy(r), server: s, request: r, name: mux.Vars(r)["name"]}
		err := s.tree.MayFollow(callerOf(r), c.name)
		if err == nil {
			err = serve(w, r, c.name, c)
		}
		if _, begun := errors.AsType[*stream.UnwritableError](err); begun {
			s.log.Error("a stream has ended: an event cannot be written", "path", r.URL.Path, "err", err)
		} else if err != nil {
			s.fail(w, r, dialectOf(r), err)
		}
		s.log.Debug("stream ended", "path", r.URL.Path, "took", time.Since(begin), "err", err)
	}
}

// serveDraftStream answers with the document of a stream in draft-02.
func (s *Server) serveDraftStream(w http.ResponseWriter, r *http.Request) {
	name, err := url.PathUnescape(strings.TrimRight(mux.Vars(r)["name"], "/"))
	p, found := discovery.DraftStream(s.streams.Kinds, name)
	if err != nil || !found {
		s.fail(w, r, wire.Draft02, stream.NoSuch())
		return
	}
	s.servePage(w, r, p)
}

// callerOf is who makes a request, for the tree.
func callerOf(r *http.Request) tree.Caller {
	if h := heldBy(r); h != nil && h.who.node {
		return tree.Caller{Node: h.who.name}
	}
	return tree.Caller{}
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, dialectOf(r), &wire.Problem{Status: http.StatusNotFound, Errors: yang.Errors{{
		Type: "protocol", Tag: "invalid-value",
		Message: "there is no such resource: the trees are /restconf/config, /restconf/operational, /rests/data and /restconf/data, the streams are in /rests/streams, the modules in /restconf/modules",
	}}})
}

// dialectOf guesses the dialect of a request that reached no tree.
func dialectOf(r *http.Request) *wire.Dialect {
	for _, prefix := range []string{
		"/restconf/config", "/restconf/operational", "/restconf/modules", "/restconf/streams", "/restconf/operations",
	} {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return wire.Draft02
		}
	}
	return wire.RFC8040
}

// withoutEmptySegments is r with runs of slashes in its path made one, so that it
// finds its route.
func withoutEmptySegments(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	if !strings.Contains(path, "//") {
		return r
	}
	segments := strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
	return withEscapedPath(r, "/"+strings.Join(segments, "/"))
}

// withPlainDatastore is r with the name of its datastore as its route has it: a colon
// may be escaped in a path.
func withPlainDatastore(r *http.Request) *http.Request {
	path := r.URL.EscapedPath()
	rest, ok := strings.CutPrefix(path, datastoresPrefix)
	if !ok {
		return r
	}
	name, _, _ := strings.Cut(rest, "/")
	plain := strings.NewReplacer("%3A", ":", "%3a", ":").Replace(name)
	if plain == name {
		return r
	}
	return withEscapedPath(r, datastoresPrefix+plain+rest[len(name):])
}

// withEscapedPath is r with another path, which is made of its own.
func withEscapedPath(r *http.Request, path string) *http.Request {
	u := *r.URL
	u.RawPath = path
	u.Path, _ = url.PathUnescape(path) // it came from a URL that was parsed
	shallow := *r
	shallow.URL = &u
	return &shallow
}
