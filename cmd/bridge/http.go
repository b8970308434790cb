package bridge

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/northbound/entry"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// HTTPConfig is how clients reach the bridge.
type HTTPConfig struct {
	Listen string // host:port
	// Access is the configuration of authentication and roles.
	Access access.Config
	// BodyLimit bounds a request's body in bytes, Timeout the work on a request;
	// 0 for RESTCONF's defaults.
	BodyLimit int64
	Timeout   time.Duration
	// AgentInterfaces is the limit of interfaces on a node for pods of its agent; 0 for
	// DefaultAgentInterfaces.
	AgentInterfaces int
}

// listen opens the listener and creates the server of the trees, metrics and health.
func (b *Bridge) listen() error {
	var err error
	if b.server, err = restconf.New(b.restconf()); err != nil {
		return err
	}
	if b.listener, err = net.Listen("tcp", b.cfg.HTTP.Listen); err != nil {
		return fmt.Errorf("listen for clients: %w; choose another address with --listen", err)
	}
	return nil
}

// ready reports whether the bridge serves: the datastore answers, and its content is known.
// An unreachable backend does not matter.
func (b *Bridge) ready() http.Handler {
	reached := &computed[error]{compute: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return b.data.Ping(ctx)
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := reached.get()
		if err == nil {
			err = b.known()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		if waits := b.waitsForPolicies(); waits != "" {
			fmt.Fprintln(w, "warning:", waits)
		}
	})
}

// known fails while the store and the streams of agents do not have the content of the
// datastore yet. Each reads it at its own pace.
func (b *Bridge) known() error {
	if b.store.CompleteFor(coe.RESTCONF) && b.recalled.happened() && b.hub.Known() {
		return nil
	}
	return fmt.Errorf("%w yet: its content is being read; try again in a moment", datastore.ErrUnavailable)
}

// restconf is the configuration of the server.
func (b *Bridge) restconf() restconf.Config {
	trees := tree.Config{
		Schema: b.schema, Datastore: b.data, Agents: b.agents(), External: b.external(),
		ReadOnly: map[string]tree.ReadOnly{
			"coe-status:status":     {Source: jsonSource(b.statusTree), Followed: true, Says: "it is the status of the bridge"},
			"coe-agent:interfaces":  {Source: b.onceKnown(always(b.hub.Tree)), Says: "it has what the bridge has chosen; write pods and pools instead"},
			"coe-status:pods":       {Source: b.onceKnown(b.podsTree), Says: "it is the status of the bridge's pods"},
			"coe-status:leases":     {Source: b.onceKnown(always(b.leasesTree)), Says: "it has what the bridge has chosen; write pods and pools instead"},
			"coe-status:pools":      {Source: b.onceKnown(always(b.poolsTree)), Says: "it says what is used of pools; write dhcp_allocation_pool:dhcp_allocation_pool instead"},
			"coe-status:services":   {Source: b.onceKnown(always(b.servicesTree)), Says: "it says where services are reached; write services instead"},
			"coe-status:egress-ips": {Source: b.onceKnown(always(b.egressIPsTree)), Says: "it has what the bridge has accepted; write EgressIPs to Kubernetes instead"},
		},
		State: map[string]tree.Source{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.onceKnown(always(b.allocationsTree)),
		},
		Checks: map[string]func([]*yang.Data) error{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.checkPools,
			"coe-gateways:gateways":                     entry.CheckGateways,
		},
		EntryChecks: map[string]func(*yang.Data) error{},
	}
	for _, top := range netvirtjson.Tops() {
		source := b.onceKnown(func(ctx context.Context, asked tree.Asked) ([]byte, error) {
			return b.netvirtTree(ctx, top, asked.Content == tree.ContentOperational)
		})
		if top == netvirtjson.AccessLists {
			trees.Computed = map[string]tree.Computed{northbound.AccessLists: {
				Source: source, Reserved: func(key []string) bool { return netvirtjson.IsGroupID(key[1]) },
				Says: "lists whose name is a UUID of version 8 are computed from network policies; change those, or use another name",
			}}
			continue
		}
		trees.ReadOnly[top] = tree.ReadOnly{
			Source: source, Says: "it is computed from pods, services, nodes, policies and pools; change those instead",
		}
	}
	for _, list := range []string{northbound.Pods, northbound.Services, northbound.EndpointsList, northbound.Nodes, northbound.Networks, northbound.Gateways, northbound.Chassis} {
		trees.EntryChecks[list] = entry.Check
	}
	return restconf.Config{
		Config: trees,
		Auth:   b.access, Audit: b.access.Audit(), TLS: b.access.TLS(),
		BodyLimit: b.cfg.HTTP.BodyLimit, Timeout: b.cfg.HTTP.Timeout, Log: b.log, Limited: limitedMetric(b.registry),
		Streams: map[string]stream.Kind{
			nodeStreams: {Source: b.hub, Description: "the interfaces of the pods on a node, as they change"},
		},
		Lost: b.lost.note,
		Open: map[string]http.Handler{
			"/metrics": shared(promhttp.HandlerFor(prometheus.GathererFunc(b.gather), promhttp.HandlerOpts{})),
			"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
			"/readyz":  b.ready(),
		},
	}
}

// limitedMetric counts refusals by limits of the server.
func limitedMetric(registry prometheus.Registerer) func(limit string) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coe_bridge_limited_total",
		Help: "What a limit of one identity or address has refused, by limit: streams (of an agent: its oldest has ended), requests, bodies, pods or connections (without a login: the oldest is closed).",
	}, []string{"limit"})
	for _, limit := range restconf.Limits {
		refused.WithLabelValues(limit)
	}
	registry.MustRegister(refused)
	return func(limit string) { refused.WithLabelValues(limit).Inc() }
}

// jsonSource is a tree that is written as JSON.
type jsonSource func(context.Context, tree.Asked) ([]byte, error)

// Get implements tree.Source.
func (s jsonSource) Get(ctx context.Context, asked tree.Asked) (*yang.Data, error) {
	raw, err := s(ctx, asked)
	if err != nil || raw == nil {
		return nil, err
	}
	return yang.DecodeObject(raw, asked.Top)
}

// onceKnown is a tree from the content of the datastore. It fails until all of that is known,
// because data that are not read yet would be missing in the tree.
func (b *Bridge) onceKnown(write jsonSource) jsonSource {
	return func(ctx context.Context, asked tree.Asked) ([]byte, error) {
		if err := b.known(); err != nil {
			return nil, err
		}
		return write(ctx, asked)
	}
}

// always is a tree with the same content for configuration and state.
func always(write func() ([]byte, error)) jsonSource {
	return func(context.Context, tree.Asked) ([]byte, error) { return write() }
}

// checkPools refuses pools that cannot serve beside each other.
func (b *Bridge) checkPools(entries []*yang.Data) error {
	var posted []dhcppool.Pool
	for _, d := range entries {
		var raw bytes.Buffer
		yang.EncodeObject(&raw, d)
		pools, err := northbound.Pools(raw.Bytes())
		if err != nil {
			return err
		}
		posted = append(posted, pools...)
	}
	err := dhcppool.Validate(slices.Concat(b.cfg.Pools, posted), !b.cfg.Mapping.Isolated())
	for _, p := range posted {
		if err == nil {
			err = b.checkPool(p)
		}
	}
	if err != nil {
		return &yang.Error{Type: "application", Tag: "invalid-value", Message: err.Error()}
	}
	return nil
}

// checkPool refuses a new pool with addresses that are reserved, or that a node has. A node
// that gets an address of an existing pool is a problem, and the pool stays.
func (b *Bridge) checkPool(p dhcppool.Pool) error {
	if err := b.reserved().Refuse(p); err != nil {
		return err
	}
	b.mu.Lock()
	before := b.posted
	b.mu.Unlock()
	if b.cfg.Mapping.Isolated() || slices.ContainsFunc(before, func(o dhcppool.Pool) bool { return o.Network == p.Network && o.Subnet == p.Subnet }) {
		return nil
	}
	for addr, n := range ranges.NodeAddresses(b.store.Nodes()) {
		if p.Subnet.Contains(addr) {
			return fmt.Errorf("pool %q, subnet %s: contains %s, the address of node %s", p.Network, p.Subnet, addr, n.Identity())
		}
	}
	return nil
}

// agents says what the agents of nodes may do.
func (b *Bridge) agents() agents {
	most := b.cfg.HTTP.AgentInterfaces
	if most <= 0 {
		most = DefaultAgentInterfaces
	}
	return agents{b.store, b.data.Revision, most, b.cluster != nil, b.requestable, newChassisPace()}
}

// external are the entries from Kubernetes in lists that RESTCONF clients write.
func (b *Bridge) external() map[string]tree.External {
	if b.cluster == nil {
		return nil
	}
	return map[string]tree.External{
		northbound.Pods:          northbound.KubernetesPods(b.store),
		northbound.Services:      northbound.KubernetesServices(b.store),
		northbound.EndpointsList: northbound.KubernetesEndpoints(b.store),
		northbound.Nodes:         northbound.KubernetesNodes(b.store),
	}
}

// gather collects the metrics of the process and of its role.
func (b *Bridge) gather() ([]*dto.MetricFamily, error) {
	return prometheus.Gatherers{b.registry, b.role.Load().registry}.Gather()
}
