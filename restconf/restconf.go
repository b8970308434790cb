// Package restconf serves the configuration and operational trees over HTTP, in
// two dialects over one schema and one datastore: OpenDaylight's
// draft-bierman-netconf-restconf-02 under /restconf/config and
// /restconf/operational, and RFC 8040 under /rests/data and /restconf/data, with
// single datastores under /rests/ds (RFC 8527). Event streams (RFC 8040 section 6) are
// under /rests/streams. What clients discover the rest by is beside them: the root
// resources, host-meta, the library of modules and their sources, and draft-02's
// lists of modules, streams and operations.
//
// It is driven by the schema: no resource has code of its own. A dialect is a
// table of differences (dialect.go), a media type a row in it. What data mean is
// not known here: semantic checks, read-only trees and operational state are
// handed in by who starts the server.
package restconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Defaults of Config.
const (
	DefaultBodyLimit = 8 << 20
	DefaultTimeout   = 10 * time.Second
)

// Content tells a Source which data are asked for.
type Content uint8

// The kinds of content.
const (
	ContentConfig      Content = iota + 1 // what is wanted
	ContentOperational                    // what is
)

// Asked is what of a Source's data a request is about.
type Asked struct {
	Content Content
	Top     *yang.Node
	// Entry is the key of the one entry of a list right below Top that the request
	// is about; nil where it is about more.
	Entry []string
	// Within is the key of the one entry of a list right below Entry that the request is
	// about; nil where it is about more.
	Within []string
	// Base is where the client finds the server, as in "https://bridge:8181"; empty where
	// nobody asks.
	Base string
}

// Source supplies the data of a tree that is not in the datastore.
type Source interface {
	// Get returns the top container as it is now, or nil where there is none. It may
	// leave out what is not asked for. The data are not changed by the caller, nor by
	// the source afterwards.
	Get(ctx context.Context, asked Asked) (*yang.Data, error)
}

// ReadOnly is a tree that clients can't write.
type ReadOnly struct {
	Source Source
	// Says is told to who tries to write: where the data come from and what to
	// change instead.
	Says string
	// Followed says that clients can follow how the tree's state changes, as the
	// stream "changes=module:container". While one does, the Source is asked every
	// second.
	Followed bool
}

// Config is what a Server is made of. Maps are by "module:container".
type Config struct {
	Schema    *yang.Schema
	Datastore *datastore.Datastore

	// ReadOnly trees; every other configuration container is writable.
	ReadOnly map[string]ReadOnly
	// State is added to the operational tree of a writable container.
	State map[string]Source
	// Foreign are entries of writable lists that come from elsewhere, by
	// "module:container/list".
	Foreign map[string]Foreign
	// Checks are run on all entries that a container would have after a write,
	// before it is made, unless it deletes whole entries: so what holds for entries
	// has to hold for fewer. Two writes never pass one side by side.
	Checks map[string]func(entries []*yang.Data) error
	// EntryChecks are run on each entry written, by "module:container/list". The
	// path of a *yang.Error that a check returns is that below what it was given.
	EntryChecks map[string]func(entry *yang.Data) error

	// Streams are what clients can follow, by kind; the kind "changes" is this
	// package's own where there is a Datastore. They list them in
	// ietf-restconf-monitoring:restconf-state, which it serves itself too.
	Streams map[string]Streams
	// Lost is told of followers of changes whose event ID is of a history of the datastore
	// that a restore has ended; nil for nobody. It must not block.
	Lost func(stream string, revision int64)
	// MaxStreams bounds how many streams users follow at once; 0 means
	// DefaultMaxStreams. Those of agents are bounded by node.
	MaxStreams int
	// Limited, if not nil, is told each time that one of Limits refuses something.
	Limited func(limit string)

	// Open are served beside the trees, by path, to everyone: health and metrics.
	Open map[string]http.Handler

	// Auth tells who asks, and what they may do.
	Auth access.Authenticator
	// Agents tells what is a node's; nil: agents may do nothing.
	Agents Agents
	// Audit is where requests that are to change something are recorded; nil for
	// nowhere.
	Audit *access.Audit
	TLS   *tls.Config // nil: plain HTTP
	// BodyLimit bounds a request's body in bytes; 0 means DefaultBodyLimit.
	BodyLimit int64
	// Timeout bounds the work on one request, from when its body is there; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	Log     *slog.Logger
}

// Server is an http.Handler. It is safe for use by many goroutines.
type Server struct {
	cfg         Config
	log         *slog.Logger
	store       *datastore.Datastore
	readOnly    map[*yang.Node]ReadOnly
	state       map[*yang.Node]Source
	foreign     map[*yang.Node]Foreign
	checks      map[*yang.Node]func([]*yang.Data) error
	entryChecks map[*yang.Node]func(*yang.Data) error
	kinds       map[string]Streams
	pages       map[string]page  // by path
	assets      map[string]asset // by path
	changes     *changes         // nil without a datastore
	shares      shares
	sockets     sync.WaitGroup // those of them that may be websockets
	tickets     tickets
	router      *mux.Router
}

// New makes a server. It fails when cfg names a node that the schema lacks.
func New(cfg Config) (*Server, error) {
	if cfg.BodyLimit <= 0 {
		cfg.BodyLimit = DefaultBodyLimit
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = DefaultMaxStreams
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limited == nil {
		cfg.Limited = func(string) {}
	}
	if cfg.Auth == nil {
		return nil, fmt.Errorf("make the RESTCONF server: no authenticator is given")
	}
	s := &Server{cfg: cfg, log: cfg.Log, store: cfg.Datastore}
	s.shares = shares{maxStreams: cfg.MaxStreams, bodyLimit: cfg.BodyLimit, timeout: cfg.Timeout, limited: cfg.Limited}
	s.kinds = map[string]Streams{}
	if err := s.resolve(); err != nil {
		return nil, fmt.Errorf("make the RESTCONF server: %w", err)
	}
	if s.store != nil {
		s.changes = newChanges(s)
		s.kinds[changesKind] = Streams{s.changes, "every change of the data of a top container"}
	}
	maps.Copy(s.kinds, cfg.Streams)
	s.pages = discoveryPages(cfg.Schema, s.kinds)
	s.assets = s.documentation()
	s.router = s.routes()
	return s, nil
}

// resolve turns names into schema nodes.
func (s *Server) resolve() (err error) {
	readOnly := maps.Clone(s.cfg.ReadOnly)
	if readOnly == nil {
		readOnly = map[string]ReadOnly{}
	}
	if err = addLibrary(readOnly, s.cfg.Schema); err != nil {
		return err
	}
	readOnly[monitoringTop] = ReadOnly{Source: monitoring(s.kinds), Says: "it says what this server can do"}
	if s.readOnly, err = byNode(s.cfg.Schema, readOnly); err != nil {
		return err
	}
	if s.state, err = byNode(s.cfg.Schema, s.cfg.State); err != nil {
		return err
	}
	if s.foreign, err = byNode(s.cfg.Schema, s.cfg.Foreign); err != nil {
		return err
	}
	if err = checkForeign(s.foreign); err != nil {
		return err
	}
	if s.checks, err = byNode(s.cfg.Schema, s.cfg.Checks); err != nil {
		return err
	}
	s.entryChecks, err = byNode(s.cfg.Schema, s.cfg.EntryChecks)
	return err
}

func byNode[V any](schema *yang.Schema, named map[string]V) (map[*yang.Node]V, error) {
	nodes := make(map[*yang.Node]V, len(named))
	for name, value := range named {
		t, err := rfc8040.parse(schema, name)
		if err != nil || t.isRoot() {
			return nil, fmt.Errorf("the schema has no node %q", name)
		}
		nodes[t.node()] = value
	}
	return nodes, nil
}

// datastoresPrefix is before the names of datastores (RFC 8527).
const datastoresPrefix = "/rests/ds/"

// routes are the places where the trees stand. Paths are matched as they were
// sent: a key may hold an encoded slash.
func (s *Server) routes() *mux.Router {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	for _, at := range []tree{
		{prefix: "/restconf/config", dialect: draft02, config: true},
		{prefix: "/restconf/operational", dialect: draft02},
		{prefix: "/restconf/data", dialect: rfc8040, config: true},
		{prefix: "/rests/data", dialect: rfc8040, config: true},
		{prefix: datastoresPrefix + "ietf-datastores:running", dialect: nmda, config: true, content: "config"},
		{prefix: datastoresPrefix + "ietf-datastores:operational", dialect: nmda},
	} {
		router.PathPrefix(at.prefix).Handler(s.serveTree(at))
	}
	router.NotFoundHandler = http.HandlerFunc(s.notFound)
	return router
}

// tree is a place where data are served.
type tree struct {
	prefix  string
	dialect *dialect
	config  bool // it can be written
	// content is all that it has, in the words of the query parameter; empty: the
	// query says.
	content string
	// node is the one whose agent asks; empty: somebody who may do what their role
	// says.
	node string
}

// ServeHTTP implements http.Handler. Of the trees nothing is looked at before the
// credentials.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.answer(w, r, nil) }

// answer serves a request; a stream ends when ending is closed.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, ending <-chan struct{}) {
	if open := s.cfg.Open[r.URL.Path]; open != nil {
		connOf(r).answerStranger(w, func() { open.ServeHTTP(w, r) })
		return
	}
	w.Header()["Cache-Control"] = noStore
	r = s.tickets.redeem(r)
	who, err := s.cfg.Auth.Authenticate(r)
	if err != nil {
		connOf(r).answerStranger(w, func() { s.refuseEntry(w, r, err) })
		return
	}
	connOf(r).authenticated()
	if s.cfg.Audit != nil && !reads(r) {
		recorded := &recorder{ResponseWriter: w}
		defer s.record(recorded, r, who)
		w = recorded
	}
	if err := permit(who, r); err != nil {
		s.fail(w, r, dialectOf(r), err)
		return
	}
	s.admit(w, r, who, ending)
}

// admit answers a request that may be made, when it is within the share of who makes it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, who access.Identity, ending <-chan struct{}) {
	h, err := s.shares.enter(r.Context(), holderOf(who))
	if err != nil {
		s.fail(w, r, dialectOf(r), err)
		return
	}
	leave := sync.OnceFunc(h.leave)
	defer leave()
	follow := follows(r)
	if follow { // a stream has a place of another kind
		leave()
	}
	if follow || !reads(r) || who.Role == access.Node {
		r = h.with(r)
	}
	if who.Role == access.Node {
		s.serveAgent(w, r, who.Node, ending)
		return
	}
	s.route(w, r, ending)
}

// follows reports whether a request is for a stream.
func follows(r *http.Request) bool {
	path := withoutEmptySegments(r).URL.EscapedPath()
	return strings.HasPrefix(path, streamsPrefix) || strings.HasPrefix(path, draftStreamsPrefix)
}

// route finds who answers a request that may be made.
func (s *Server) route(w http.ResponseWriter, r *http.Request, ending <-chan struct{}) {
	r = withPlainDatastore(withoutEmptySegments(r))
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), streamsPrefix); ok {
		s.serveStream(w, r, rfc8040, rest, ending, mayReadAll)
		return
	}
	if p, ok := s.pageAt(r.URL.EscapedPath()); ok {
		s.servePage(w, r, p)
		return
	}
	if a, ok := s.assets[strings.TrimRight(r.URL.Path, "/")]; ok {
		s.serveAsset(w, r, a)
		return
	}
	if isSubscribe(r) {
		s.serveSubscribe(w, r)
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), draftStreamsPrefix); ok {
		s.serveDraftStream(w, r, rest, ending)
		return
	}
	s.router.ServeHTTP(w, r)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, dialectOf(r), &problem{status: http.StatusNotFound, errors: yang.Errors{{
		Type: "protocol", Tag: "invalid-value",
		Message: "there is no such resource: the trees are /restconf/config, /restconf/operational, /rests/data and /restconf/data, the streams are in /rests/streams, the modules in /restconf/modules",
	}}})
}
