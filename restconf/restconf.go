// Package restconf serves the configuration and operational trees over HTTP, in
// two dialects over one schema and one datastore: OpenDaylight's
// draft-bierman-netconf-restconf-02 under /restconf/config and
// /restconf/operational, and RFC 8040 under /rests/data and /restconf/data, with
// single datastores under /rests/ds (RFC 8527). Event streams (RFC 8040 section 6) are
// under /rests/streams. Clients discover these by the root resources, host-meta, the library
// of modules and their sources, and draft-02's lists of modules, streams and operations.
//
// It is driven by the schema: no resource has code of its own. Reads and writes are
// restconf/tree's, dialects and encodings restconf/wire's. The meaning of the data is not
// known here: Config has the semantic checks, read-only trees and operational state.
package restconf

import (
	"crypto/tls"
	"embed"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Defaults of Config.
const (
	DefaultBodyLimit = 8 << 20
	DefaultTimeout   = 10 * time.Second
)

// Config configures a Server.
type Config struct {
	tree.Config

	// Streams are what clients can follow, by kind; the kind "changes" is this
	// package's own where there is a Datastore. They list them in
	// ietf-restconf-monitoring:restconf-state, which it serves itself too.
	Streams map[string]discovery.Streams
	// Lost is called for each follower whose event ID is of a history of the datastore
	// that a restore has ended; nil: no call. It must not block.
	Lost func(stream string, revision int64)
	// MaxStreams bounds how many streams users follow at once; 0 means
	// DefaultMaxStreams. Those of agents are bounded by node.
	MaxStreams int
	// Limited, if not nil, is called each time that one of Limits refuses something.
	Limited func(limit string)

	// Open are served beside the trees, by path, to everyone: health and metrics.
	Open map[string]http.Handler

	// Auth tells who asks, and what they may do.
	Auth access.Authenticator
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

// sources are the modules whose definitions are in messages only, each in the file of its
// name.
//
//go:embed modules/*.yang
var sources embed.FS

// Server is an http.Handler. It is safe for use by many goroutines.
type Server struct {
	cfg     Config
	log     *slog.Logger
	tree    *tree.Tree
	modules []*yang.Module
	kinds   map[string]discovery.Streams
	changes *changes // nil without a datastore
	shares  shares
	sockets sync.WaitGroup // requests that may become websockets
	tickets tickets
	router  *mux.Router
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
	s := &Server{cfg: cfg, log: cfg.Log, kinds: map[string]discovery.Streams{}}
	s.shares = shares{maxStreams: cfg.MaxStreams, bodyLimit: cfg.BodyLimit, timeout: cfg.Timeout, limited: cfg.Limited}
	var err error
	if s.modules, err = discovery.Modules(cfg.Schema, sources); err == nil {
		s.tree, err = s.newTree()
	}
	if err != nil {
		return nil, fmt.Errorf("make the RESTCONF server: %w", err)
	}
	if cfg.Datastore != nil {
		s.changes = newChanges(s)
		s.kinds[changesKind] = discovery.Streams{Source: s.changes, Description: "every change of the data of a top container"}
	}
	maps.Copy(s.kinds, cfg.Streams)
	s.router = s.routes()
	return s, nil
}

// newTree makes the tree, with the read-only trees of RESTCONF itself.
func (s *Server) newTree() (*tree.Tree, error) {
	cfg := s.cfg.Config
	own, err := discovery.Trees(s.modules, s.kinds)
	if err != nil {
		return nil, err
	}
	maps.Copy(own, cfg.ReadOnly)
	cfg.ReadOnly = own
	return tree.New(cfg)
}
