// Package bridge puts the parts of coe-bridge together and runs them: the
// datastore, the RESTCONF tree over it, the store that it feeds, the addresses,
// the mapping, and the loop that makes the backend agree. It holds wiring and no
// decisions of its own.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Config is all that a bridge is told. Flags fill it.
type Config struct {
	HTTP      HTTPConfig
	Datastore datastore.Config // Schema and Log are filled in
	Backend   BackendConfig
	Mapping   mapping.Settings
	Reconcile reconcile.Config
	// ReuseDelay is how long an address is kept after its pod went away.
	ReuseDelay time.Duration
	Version    string
	Log        *slog.Logger
}

// Bridge is a bridge that is put together. Make it with New, then Run it.
type Bridge struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry
	schema   *yang.Schema
	data     *datastore.Datastore
	leader   *datastore.Leadership
	store    *coe.Store
	assigner *ipam.Assigner
	backend  closer
	loop     *reconcile.Loop
	claims   *reconcile.Claims
	server   *restconf.Server
	listener net.Listener
}

// New opens the datastore and puts the parts together. Close releases what it
// holds.
func New(ctx context.Context, cfg Config) (*Bridge, error) {
	b := &Bridge{cfg: cfg, log: cfg.Log, registry: prometheus.NewRegistry()}
	b.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bridge) open(ctx context.Context) error {
	var err error
	if b.schema, err = yang.Load(); err != nil {
		return err
	}
	cfg := b.cfg.Datastore
	cfg.Schema, cfg.Log = b.schema, b.log
	if b.data, err = datastore.Open(ctx, cfg); err != nil {
		return err
	}
	waiting := time.AfterFunc(time.Second, func() { b.log.Info("another bridge leads; waiting until it is gone") })
	b.leader, err = b.data.Campaign(ctx)
	waiting.Stop()
	if err != nil {
		return err
	}
	b.store = coe.NewStore(b.changed, coe.RESTCONF)
	b.assigner = ipam.New(ipamConfig(b.cfg.Mapping, b.cfg.ReuseDelay), b.store, b.leader.Records("chosen"), b.log)
	if err := b.assigner.Load(ctx); err != nil {
		return err
	}
	if b.backend, err = newBackend(b.cfg.Backend, strconv.FormatInt(b.leader.Epoch, 10), b.log); err != nil {
		return err
	}
	b.loop = reconcile.New(b.cfg.Reconcile, b.cfg.Backend.Name, b.backend, reconcile.Source{
		Want:     mapping.NewMapper(b.store, b.cfg.Mapping).Scope,
		Complete: b.store.Complete,
		Scopes:   b.scopes,
		Revision: b.store.Revision,
		Heard:    func() bool { return b.store.Revision() >= b.data.Revision() },
	}, reconcile.NewMetrics(b.registry), b.log)
	b.claims = reconcile.NewClaims(b.assigner, b.loop, b.log)
	return b.listen()
}

func ipamConfig(s mapping.Settings, reuseDelay time.Duration) ipam.Config {
	return ipam.Config{
		ELANName:      netvirt.ELANName,
		VPNName:       netvirt.VPNName,
		InterfaceName: netvirt.InterfaceName,
		Isolated:      s.Isolated(),
		ReuseDelay:    reuseDelay,
	}
}

// Run serves until ctx is done or something fails for good.
func (b *Bridge) Run(ctx context.Context) error {
	g := newGroup(ctx)
	g.run("follow the datastore", b.follow)
	g.run("choose addresses", func(ctx context.Context) error { b.claims.Run(ctx); return nil })
	g.run("reconcile", b.loop.Run)
	g.run("serve HTTP", func(ctx context.Context) error { return b.server.Serve(ctx, b.listener) })
	g.run("pace the collector", paceCollector)
	g.run("lead", b.lead)
	return g.wait()
}

// Close releases the datastore and the backend. It is called after Run has
// returned, or when Run is not called.
func (b *Bridge) Close() error {
	var errs []error
	if b.listener != nil {
		_ = b.listener.Close() // the server has closed it, if it ran
	}
	if b.backend != nil {
		b.backend.Close()
	}
	if b.leader != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		errs = append(errs, b.leader.Resign(ctx))
	}
	if b.data != nil {
		errs = append(errs, b.data.Close())
	}
	return errors.Join(errs...)
}

// URL is where the bridge serves.
func (b *Bridge) URL() string {
	scheme := "http"
	if b.cfg.HTTP.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + b.listener.Addr().String()
}

// lead ends the bridge when another one leads: whoever started it starts it
// again, as one that waits.
func (b *Bridge) lead(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-b.leader.Lost:
		return errors.New("another bridge leads, or the datastore could not be reached for too long")
	}
}

// follow tells the store what RESTCONF clients write.
func (b *Bridge) follow(ctx context.Context) error {
	feed := northbound.NewFeed(b.store, b.pools, b.log)
	return b.data.Follow(ctx, func(batch datastore.Batch) error {
		in := northbound.Batch{Revision: batch.Revision, Snapshot: batch.Snapshot}
		for _, u := range batch.Delete {
			if e, ok := entry(u); ok {
				e.Raw = nil
				in.Entries = append(in.Entries, e)
			}
		}
		for _, u := range batch.Put {
			if e, ok := entry(u); ok {
				in.Entries = append(in.Entries, e)
			}
		}
		feed.Apply(in)
		return nil
	})
}

func entry(u *datastore.Unit) (northbound.Entry, bool) {
	if len(u.Key) != 1 {
		return northbound.Entry{}, false
	}
	return northbound.Entry{List: listName(u.Node), Key: u.Key[0], Raw: u.Raw, Revision: u.ModRevision}, true
}

// listName is "module:container/list".
func listName(n *yang.Node) string {
	name := n.Name
	for p := n.Parent; p != nil; p = p.Parent {
		name = p.Name + "/" + name
	}
	return fmt.Sprintf("%s:%s", n.Module.Name, name)
}

// changed hands on what the store says has changed.
func (b *Bridge) changed(c coe.Changed) {
	scopes := make([]netvirt.Scope, 0, len(c.Namespaces)+1)
	for _, ns := range c.Namespaces {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	if c.Cluster {
		scopes = append(scopes, netvirt.Cluster)
	}
	b.claims.Mark(scopes...)
}

func (b *Bridge) want(s netvirt.Scope) (netvirt.Model, []coe.Problem) {
	return mapping.Scope(b.store, s, b.cfg.Mapping)
}

func (b *Bridge) scopes() []netvirt.Scope {
	var scopes []netvirt.Scope
	for _, ns := range b.store.Namespaces() {
		scopes = append(scopes, netvirt.Scope(ns))
	}
	return scopes
}
