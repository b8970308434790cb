// Package bridge creates the parts of coe-bridge and runs them: the datastore, the RESTCONF
// tree over it, the sources that feed the store, the addresses, the mapping, and the loop
// that programs the backend. It is wiring, and makes no decisions of its own.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Config is the configuration of a bridge. Flags fill it.
type Config struct {
	HTTP      HTTPConfig
	Datastore datastore.Config // Schema, Log, Valid and Defaults are filled in
	// Backend serves the pods. Filled are more backends with the same model that serve no
	// pods, for a move of the pods to one of them. Without a layout of OVN they have the default of the datastore.
	Backend   BackendConfig
	Filled    []BackendConfig
	Mapping   mapping.Settings // without Limits, which belong to each backend
	Reconcile reconcile.Config
	// ReuseDelay is how long an address stays reserved after its pod is gone.
	ReuseDelay time.Duration
	// Pools are used beside the pools of RESTCONF clients.
	Pools []dhcppool.Pool
	// NodePools makes every node's pod-cidrs pools of that node.
	NodePools bool
	// Nodes says how nodes are joined with the network.
	Nodes ranges.NodesConfig
	// EgressPort is the TCP port on which the agents of nodes that may hold egress addresses answer the bridge.
	EgressPort uint16
	// MTU is the MTU of pod interfaces; 0 lets the node decide.
	MTU uint16
	// Kubernetes is the cluster that is watched; its API is nil for none.
	Kubernetes KubernetesConfig
	Version    string
	Log        *slog.Logger
}

// Bridge is one replica. Create it with New, then Run it.
//
// Every replica keeps its store up to date and serves. One of them leads: it
// chooses addresses and writes to the backend. The others are standbys.
type Bridge struct {
	cfg      Config
	log      *slog.Logger
	registry *prometheus.Registry
	schema   *yang.Schema
	data     *datastore.Datastore
	store    *state.Store
	cluster  *cluster // nil where Kubernetes is not watched
	hub      *agentstream.Hub
	lost     *lostHistories
	ports    *ports // nil with another backend than OVN
	access   *access.Access
	server   *restconf.Server
	listener net.Listener

	// read gets the records that this replica has read to lead for the first time, once, if the datastore is embedded. It holds one.
	read     chan *datastore.AllRecords
	readOnce sync.Once
	// role is what this replica does with the backends now.
	role atomic.Pointer[role]
	// recalled is done when the store has the choices that were made before this replica
	// was started.
	recalled event
	// settled has happened when this replica has made its first large request of the backend, or is a standby and makes none.
	settled event

	// repooling is held while the pools of the assigner are set, which waits for the
	// datastore. pooled are these pools.
	repooling sync.Mutex
	pooled    atomic.Pointer[joinedPools]
	// mu guards what follows.
	mu     sync.Mutex
	posted []dhcppool.Pool // what RESTCONF clients posted
	joined *joinedPools    // allPools; nil when posted has changed
}

// New opens the datastore and creates the parts. Close releases them.
func New(ctx context.Context, cfg Config) (*Bridge, error) {
	b := &Bridge{cfg: cfg, log: cfg.Log, registry: prometheus.NewRegistry(), recalled: newEvent(), settled: newEvent(), read: make(chan *datastore.AllRecords, 1)}
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
	if b.role.Load().leads() {
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
	cfg.Schema, cfg.Log, cfg.Valid, cfg.Defaults = b.schema, b.log, isObject, layoutNode
	if b.data, err = datastore.Open(ctx, cfg); err != nil {
		return err
	}
	b.cfg.setLayouts(b.data.Defaults())
	b.lost = newLostHistories(b.registry, b.log)
	b.hub = agentstream.New(agentstream.Config{
		Identity: b.data.Identity(), MTU: b.cfg.MTU, DHCPLeaseTime: b.cfg.Mapping.LeaseTime(), Physical: b.cfg.Mapping.Physical, Lost: b.lost.note, Log: b.log,
	})
	b.store = state.NewStore(b.changed, b.origins()...)
	if err := b.watchCluster(); err != nil {
		return err
	}
	standby, err := b.newStandby()
	if err != nil {
		return err
	}
	b.role.Store(standby)
	if b.ports, err = b.newPorts(); err != nil {
		return err
	}
	return b.listen()
}

// origins are the sources that must be complete before absence means deleted.
func (b *Bridge) origins() []coe.Origin {
	if b.cfg.Kubernetes.API == nil {
		return []coe.Origin{coe.RESTCONF}
	}
	return []coe.Origin{coe.RESTCONF, coe.Kubernetes}
}

// nodes is how nodes are joined with the network by a backend of these kinds.
func (b *Bridge) nodes(kinds netvirt.KindSet) ranges.NodesConfig {
	nodes := b.cfg.Nodes.For(kinds, b.cfg.Mapping.Isolated())
	if b.cfg.Mapping.Separates() {
		return nodes.Closed()
	}
	return nodes
}

// Run serves until ctx is done or a part fails.
func (b *Bridge) Run(ctx context.Context) error {
	g := newGroup(ctx)
	g.run("follow the datastore", b.follow)
	g.run("follow what is chosen", b.followChosen)
	g.run("settle event IDs", func(ctx context.Context) error { b.hub.Settle(ctx, b.data.History); return nil })
	if b.cluster != nil {
		g.run("follow Kubernetes", b.cluster.source.Run)
	}
	g.run("lead or stand by", b.runRoles)
	if b.ports != nil {
		g.run("follow ports in OVN", b.followPorts)
	}
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
	if r := b.role.Load(); r != nil {
		r.close()
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
