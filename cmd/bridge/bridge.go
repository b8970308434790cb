// Package bridge puts the parts of coe-bridge together and runs them: the
// datastore, the RESTCONF tree over it, the sources that feed the store, the
// addresses, the mapping, and the loop that makes the backend agree. It holds
// wiring and no decisions of its own.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Config is all that a bridge is told. Flags fill it.
type Config struct {
	HTTP      HTTPConfig
	Datastore datastore.Config // Schema, Log and Valid are filled in
	// Backend serves the pods. Filled are further ones that are held to the same model,
	// and serve nobody: where pods are to move to, say.
	Backend   BackendConfig
	Filled    []BackendConfig
	Mapping   mapping.Settings
	Reconcile reconcile.Config
	// ReuseDelay is how long an address is kept after its pod went away.
	ReuseDelay time.Duration
	// Pools are there beside those that RESTCONF clients post.
	Pools []dhcppool.Pool
	// NodePools makes every node's pod-cidrs pools of that node.
	NodePools bool
	// Nodes says how nodes are joined with the network.
	Nodes NodesConfig
	// MTU is that of pods' interfaces; 0: what their node finds right.
	MTU uint16
	// Kubernetes is the cluster that is watched; its API is nil for none.
	Kubernetes KubernetesConfig
	Version    string
	Log        *slog.Logger
}

// Bridge is one replica that is put together. Make it with New, then Run it.
//
// Every replica keeps its store up to date and serves. One of them leads: it
// chooses addresses and writes to the backend. The others look on.
type Bridge struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry
	schema   *yang.Schema
	data     *datastore.Datastore
	store    *coe.Store
	cluster  *cluster // nil where Kubernetes is not watched
	hub      *agentstream.Hub
	lost     *lostHistories
	access   *access.Access
	server   *restconf.Server
	listener net.Listener

	// part is what this replica does with the backend now.
	part atomic.Pointer[part]
	// recalled tells that the store has what was chosen before this replica was started.
	recalled atomic.Bool

	// repooling is held while the assigner is told of pools, which waits for the
	// datastore; mu guards what follows.
	repooling sync.Mutex
	// repoolDue says that the nodes have changed, which may have pools.
	repoolDue atomic.Bool
	mu        sync.Mutex
	posted    []dhcppool.Pool // what RESTCONF clients posted
}

// New opens the datastore and puts the parts together. Close releases what it
// holds.
func New(ctx context.Context, cfg Config) (*Bridge, error) {
	cfg.Mapping.Limits = limits(cfg.Backend.Name)
	b := &Bridge{cfg: cfg, log: cfg.Log, registry: prometheus.NewRegistry()}
	b.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	b.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "coe_bridge_leader", Help: "1 while this replica leads, else 0.",
	}, b.leadsMetric), census{b})
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Bridge) leadsMetric() float64 {
	if b.part.Load().leads() {
		return 1
	}
	return 0
}

func (b *Bridge) open(ctx context.Context) error {
	var err error
	if b.access, err = access.Open(b.cfg.HTTP.Access, b.log, b.registry); err != nil {
		return err
	}
	if b.schema, err = yang.Load(); err != nil {
		return err
	}
	cfg := b.cfg.Datastore
	cfg.Schema, cfg.Log, cfg.Valid = b.schema, b.log, isObject
	if b.data, err = datastore.Open(ctx, cfg); err != nil {
		return err
	}
	b.lost = newLostHistories(b.registry, b.log)
	b.hub = agentstream.New(agentstream.Config{Identity: b.data.Identity(), MTU: b.cfg.MTU, Lost: b.lost.told, Log: b.log})
	b.store = coe.NewStore(b.changed, b.origins()...)
	if err := b.watchCluster(); err != nil {
		return err
	}
	onlooker, err := b.newOnlooker()
	if err != nil {
		return err
	}
	b.part.Store(onlooker)
	return b.listen()
}

// origins are those who are heard before absence means gone.
func (b *Bridge) origins() []coe.Origin {
	if b.cfg.Kubernetes.API == nil {
		return []coe.Origin{coe.RESTCONF}
	}
	return []coe.Origin{coe.RESTCONF, coe.Kubernetes}
}

// NodesConfig says how nodes are joined with the network.
type NodesConfig struct {
	// Network is where the addresses of nodes' management ports are from; its zero
	// value leaves nodes without one.
	Network coe.NodeNetwork
	// Pods and Services are ranges of addresses beside those of pools that nodes are
	// to reach by the network.
	Pods, Services []netip.Prefix
	// External are the ranges of the external addresses that services of Kubernetes
	// may have.
	External []netip.Prefix
	// reserved are what the backend uses itself.
	reserved []netip.Prefix
}

// of are the nodes that can be joined with a network of these settings, in a backend
// of these kinds: none while namespaces are isolated.
func (n NodesConfig) of(s mapping.Settings, kinds netvirt.KindSet) NodesConfig {
	joins := kinds.Has(netvirt.KindManagementPort)
	if joins {
		n.reserved = []netip.Prefix{TransitLinks}
	}
	if s.Isolated() || !joins {
		n.Network = coe.NodeNetwork{}
	}
	return n
}

// TransitLinks are the addresses that the OVN backend gives to its own links.
var TransitLinks = netip.MustParsePrefix("100.64.0.0/11")

func ipamConfig(s mapping.Settings, nodes NodesConfig, reuseDelay time.Duration) ipam.Config {
	return ipam.Config{
		NodeNetwork: nodes.Network, PodNetworks: nodes.Pods, ServiceNetworks: nodes.Services,
		Reserved: nodes.reserved, ExternalAddresses: nodes.External,

		ELANName:      netvirt.ELANName,
		VPNName:       netvirt.VPNName,
		InterfaceName: netvirt.InterfaceName,
		PortName:      netvirt.PortName,
		Isolated:      s.Isolated(),
		ReuseDelay:    reuseDelay,
	}
}

// Run serves until ctx is done or something fails for good.
func (b *Bridge) Run(ctx context.Context) error {
	g := newGroup(ctx)
	g.run("follow the datastore", b.follow)
	g.run("follow what is chosen", b.followChosen)
	g.run("settle event IDs", func(ctx context.Context) error { b.hub.Settle(ctx, b.data.History); return nil })
	if b.cluster != nil {
		g.run("follow Kubernetes", b.cluster.source.Run)
	}
	g.run("take part", b.takePart)
	g.run("follow files of access", b.access.Run)
	g.run("serve HTTP", func(ctx context.Context) error { return b.server.Serve(ctx, b.listener) })
	g.run("pace the collector", b.paceCollector)
	return g.wait()
}

// Close releases the datastore, the backend and the audit log. It is called after Run has
// returned, or when Run is not called.
func (b *Bridge) Close() error {
	if b.listener != nil {
		_ = b.listener.Close() // the server has closed it, if it ran
	}
	if p := b.part.Load(); p != nil {
		p.close()
	}
	var errs []error
	if b.data != nil {
		errs = append(errs, b.data.Close())
	}
	if b.access != nil {
		errs = append(errs, b.access.Close())
	}
	return errors.Join(errs...)
}

// URL is where the bridge serves.
func (b *Bridge) URL() string {
	scheme := "http"
	if b.access.TLS() != nil {
		scheme = "https"
	}
	return scheme + "://" + b.listener.Addr().String()
}
