// Package restconf serves the configuration and operational trees over HTTP, in
// two dialects over one schema and one datastore: OpenDaylight's
// draft-bierman-netconf-restconf-02 under /restconf/config and
// /restconf/operational, and RFC 8040 under /rests/data and /restconf/data, with
// single datastores under /rests/ds (RFC 8527). Event streams (RFC 8040 section 6) are
// under /rests/streams. Clients discover these by the root resources, host-meta, the library
// of modules and their sources, and draft-02's lists of modules, streams and operations.
//
// The schema defines the resources: no resource has code of its own. restconf/tree reads and
// writes the data, and restconf/wire has dialects and encodings. This package does not know the
// meaning of the data: Config has the semantic checks, read-only trees and operational state.
package restconf

import (
	"cmp"
	"context"
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
	"github.com/coe-bridge/coe-bridge/restconf/changes"
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/salremote"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Defaults of Config.
const (
	DefaultBodyLimit  = 8 << 20
	DefaultTimeout    = 10 * time.Second
	DefaultMaxStreams = 4096
)

// Config configures a Server.
type Config struct {
	tree.Config

	// Streams are the event streams that clients can follow, by kind. With a Datastore, the
	// Server adds the kind "changes". It lists all streams in
	// ietf-restconf-monitoring:restconf-state.
	Streams map[string]stream.Kind
	// Lost, if not nil, is called for each follower whose event ID belongs to a history of the
	// datastore that a restore has ended. It must not block.
	Lost func(stream string, revision int64)
	// MaxStreams is the largest number of streams that users follow at the same time; 0 means
	// DefaultMaxStreams. The streams of agents have a limit for each node instead.
	MaxStreams int
	// Limited, if not nil, is called each time that one of Limits refuses a request.
	Limited func(limit string)

	// Open has handlers for further paths, without authentication: health and metrics.
	Open map[string]http.Handler

	// Auth authenticates clients, and returns what they are allowed to do.
	Auth access.Authenticator
	// Audit records requests for changes; nil means no record.
	Audit *access.Audit
	TLS   *tls.Config // nil means plain HTTP
	// BodyLimit is the largest size of a request's body in bytes; 0 means DefaultBodyLimit.
	BodyLimit int64
	// Timeout bounds the work on a request after its body has been read; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	Log     *slog.Logger
}

// sources has the modules that define only messages, not data. Each is in a file with its name.
//
//go:embed modules/*.yang
var sources embed.FS

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	tree    *tree.Tree
	modules []*yang.Module
	streams *stream.Server
	keep    func(context.Context) error // keeps the streams of changes until the context ends
	shares  shares
	// following are the requests for streams: the HTTP server forgets those that become websockets.
	following  sync.WaitGroup
	extensions []extension
	operations []discovery.Operation // of the extensions
	router     *mux.Router
}

// New creates a server. It fails if cfg names a node that the schema does not have.
func New(cfg Config) (*Server, error) {
	cfg.BodyLimit = cmp.Or(max(0, cfg.BodyLimit), DefaultBodyLimit)
	cfg.Timeout = cmp.Or(max(0, cfg.Timeout), DefaultTimeout)
	cfg.MaxStreams = cmp.Or(max(0, cfg.MaxStreams), DefaultMaxStreams)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Limited == nil {
		cfg.Limited = func(string) {}
	}
	if cfg.Auth == nil {
		return nil, fmt.Errorf("create the RESTCONF server: the configuration has no authenticator")
	}
	kinds := map[string]stream.Kind{}
	s := &Server{cfg: cfg, log: cfg.Log, streams: &stream.Server{Schema: cfg.Schema, Kinds: kinds}}
	s.shares = shares{maxStreams: cfg.MaxStreams, bodyLimit: cfg.BodyLimit, timeout: cfg.Timeout, limited: cfg.Limited}
	s.keep = func(ctx context.Context) error { <-ctx.Done(); return nil }
	if cfg.Datastore != nil {
		source := changes.New(cfg.Config, cfg.Lost, cfg.Log)
		s.keep = source.Run
		kinds[changes.Kind] = stream.Kind{Source: source, Description: "every change of the data of a top container"}
	}
	maps.Copy(kinds, cfg.Streams)
	s.extensions = []extension{salremote.New(cfg.Schema, kinds[changes.Kind].Source, cfg.Timeout, cfg.Log)}
	for _, e := range s.extensions {
		s.operations = append(s.operations, e.Operation())
	}
	var err error
	if s.modules, err = discovery.Modules(cfg.Schema, s.operations, sources); err == nil {
		s.tree, err = s.newTree()
	}
	if err != nil {
		return nil, fmt.Errorf("create the RESTCONF server: %w", err)
	}
	s.router = s.routes()
	return s, nil
}

// newTree makes the tree, with the read-only trees of RESTCONF itself.
func (s *Server) newTree() (*tree.Tree, error) {
	cfg := s.cfg.Config
	own, err := discovery.Trees(s.modules, s.streams.Kinds)
	if err != nil {
		return nil, err
	}
	maps.Copy(own, cfg.ReadOnly)
	cfg.ReadOnly = own
	return tree.New(cfg)
}
