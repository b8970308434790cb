package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/yang"
)

// HTTPConfig is how clients reach the bridge.
type HTTPConfig struct {
	Listen string // host:port
	// Auth tells who may do what.
	Auth restconf.Authenticator
	// CertFile and KeyFile make it HTTPS; ClientCAFile then asks clients for a
	// certificate of that authority.
	CertFile, KeyFile, ClientCAFile string
	// BodyLimit bounds a request's body in bytes, Timeout the work on a request;
	// 0 for RESTCONF's defaults.
	BodyLimit int64
	Timeout   time.Duration
}

// drain is how long requests under way have to end when the bridge stops.
const drain = 3 * time.Second

// server is the HTTP side: RESTCONF, metrics and health on one listener.
type server struct {
	listener net.Listener
	http     *http.Server
	tls      bool
}

func (b *Bridge) newServer() (*server, error) {
	tree, err := b.restconf()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", tree)
	mux.Handle("GET /metrics", promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", b.ready)
	cfg := b.cfg.HTTP
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w; choose another address with --listen", err)
	}
	s := &server{listener: listener, http: restconf.HTTPServer(mux, tree), tls: cfg.CertFile != ""}
	if s.tls {
		if s.http.TLSConfig, err = tlsConfig(cfg); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	return s, nil
}

func tlsConfig(cfg HTTPConfig) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if cfg.ClientCAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(cfg.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read --client-ca: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --client-ca %s: no certificate in it", cfg.ClientCAFile)
	}
	out.ClientAuth = tls.RequireAndVerifyClientCert
	return out, nil
}

func (s *server) url() string {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// run serves until ctx is done, then lets requests under way end.
func (s *server) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		drained, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if s.http.Shutdown(drained) != nil {
			_ = s.http.Close()
		}
	})
	defer stop()
	var err error
	if s.tls {
		err = s.http.ServeTLS(s.listener, "", "")
	} else {
		err = s.http.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *server) close() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ready tells whether the bridge serves: the datastore answers, and what it
// holds is known. A backend that is away does not make it unready.
func (b *Bridge) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := b.data.Ping(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if !b.store.Complete() {
		http.Error(w, "the datastore is being read", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// restconf is the server of the trees.
func (b *Bridge) restconf() (*restconf.Server, error) {
	cfg := restconf.Config{
		Schema: b.schema, Datastore: b.data, Auth: b.cfg.HTTP.Auth,
		BodyLimit: b.cfg.HTTP.BodyLimit, Timeout: b.cfg.HTTP.Timeout, Log: b.log,
		ReadOnly: map[string]restconf.ReadOnly{
			"coe-status:status": {b.source(always(b.statusTree)), "it says how far the bridge is"},
			"coe-status:leases": {b.source(always(b.leasesTree)), "it says what was chosen; send pods and pools instead"},
		},
		State: map[string]restconf.Source{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.source(always(b.allocationsTree)),
		},
		Checks: map[string]func([]*yang.Data) error{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.checkPools,
		},
		EntryChecks: map[string]func(*yang.Data) error{},
	}
	for _, top := range netvirtjson.Tops() {
		cfg.ReadOnly[top] = restconf.ReadOnly{
			Source: b.source(func(c restconf.Content) ([]byte, error) {
				return b.netvirtTree(top, c == restconf.ContentOperational)
			}),
			Says: "it follows from pods, services, nodes and pools; change those instead",
		}
	}
	for _, list := range []string{northbound.Pods, northbound.Services, northbound.EndpointsList, northbound.Nodes} {
		cfg.EntryChecks[list] = func(d *yang.Data) error { return checkEntry(list, d) }
	}
	return restconf.New(cfg)
}

// source makes a tree that is written as JSON a source of the RESTCONF server.
func (b *Bridge) source(write func(restconf.Content) ([]byte, error)) restconf.Source {
	return jsonSource(write)
}

type jsonSource func(restconf.Content) ([]byte, error)

// Get implements restconf.Source.
func (s jsonSource) Get(_ context.Context, c restconf.Content, top *yang.Node) (*yang.Data, error) {
	raw, err := s(c)
	if err != nil || raw == nil {
		return nil, err
	}
	return yang.DecodeObject(raw, top)
}

// always is a tree that is the same in both contents.
func always(write func() ([]byte, error)) func(restconf.Content) ([]byte, error) {
	return func(restconf.Content) ([]byte, error) { return write() }
}

// checkEntry refuses what is valid by the YANG modules and can't be meant.
func checkEntry(list string, d *yang.Data) error {
	var raw bytes.Buffer
	yang.EncodeObject(&raw, d)
	err := northbound.Check(list, raw.Bytes())
	var leaf *northbound.LeafError
	if errors.As(err, &leaf) {
		return &yang.Error{Type: "application", Tag: "invalid-value", Path: leaf.Leaf, Message: leaf.Err.Error()}
	}
	return err
}

// checkPools refuses pools that can't serve beside each other.
func (b *Bridge) checkPools(entries []*yang.Data) error {
	var all []dhcppool.Pool
	for _, d := range entries {
		var raw bytes.Buffer
		yang.EncodeObject(&raw, d)
		pools, err := northbound.Pools(raw.Bytes())
		if err != nil {
			return err
		}
		all = append(all, pools...)
	}
	if err := dhcppool.Validate(all, b.cfg.Mapping.Isolation != mapping.IsolationNamespace); err != nil {
		return &yang.Error{Type: "application", Tag: "invalid-value", Message: err.Error()}
	}
	return nil
}

// pools hands on what pools there are.
func (b *Bridge) pools(all []dhcppool.Pool) {
	for _, ns := range b.assigner.SetPools(all) {
		b.claims.Mark(netvirt.Scope(ns))
	}
}
