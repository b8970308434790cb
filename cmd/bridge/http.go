package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/restconf"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// HTTPConfig is how clients reach the bridge.
type HTTPConfig struct {
	Listen string // host:port
	// Access tells who may do what, and how both sides show themselves.
	Access access.Config
	// BodyLimit bounds a request's body in bytes, Timeout the work on a request;
	// 0 for RESTCONF's defaults.
	BodyLimit int64
	Timeout   time.Duration
	// AgentInterfaces is how many interfaces the pods on a node may have for its agent to
	// make more; 0 for DefaultAgentInterfaces.
	AgentInterfaces int
}

// listen opens the listener and makes the server of the trees, of metrics and
// of health.
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

// ready reports whether the bridge serves: the datastore answers, and what it
// holds is known. A backend that is away does not make it unready.
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
	})
}

// known fails while the store and the agents' streams do not have yet all that the
// datastore holds. Each of the three reads it at its own pace.
func (b *Bridge) known() error {
	if b.store.Heard(coe.RESTCONF) && b.recalled.Load() && b.hub.Known() {
		return nil
	}
	return fmt.Errorf("%w yet: what it holds is being read; ask again in a moment", datastore.ErrUnavailable)
}

// restconf is how the server of the trees is made.
func (b *Bridge) restconf() restconf.Config {
	cfg := restconf.Config{
		Schema: b.schema, Datastore: b.data, Auth: b.access, Agents: b.agents(), Audit: b.access.Audit(), TLS: b.access.TLS(),
		BodyLimit: b.cfg.HTTP.BodyLimit, Timeout: b.cfg.HTTP.Timeout, Log: b.log, Limited: limitedMetric(b.registry),
		ReadOnly: map[string]restconf.ReadOnly{
			"coe-status:status":    {Source: jsonSource(b.statusTree), Followed: true, Says: "it says how far the bridge is"},
			"coe-agent:interfaces": {Source: b.onceKnown(always(b.hub.Tree)), Says: "it says what was chosen; send pods and pools instead"},
			"coe-status:pods":      {Source: b.onceKnown(b.podsTree), Says: "it says how far the bridge is with each pod"},
			"coe-status:leases":    {Source: b.onceKnown(always(b.leasesTree)), Says: "it says what was chosen; send pods and pools instead"},
		},
		State: map[string]restconf.Source{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.onceKnown(always(b.allocationsTree)),
		},
		Checks: map[string]func([]*yang.Data) error{
			"dhcp_allocation_pool:dhcp_allocation_pool": b.checkPools,
		},
		EntryChecks: map[string]func(*yang.Data) error{},
		Streams: map[string]restconf.Streams{
			nodeStreams: {Source: b.hub, Description: "the interfaces of the pods on a node, as they change"},
		},
		Lost:    b.lost.told,
		Foreign: b.foreign(),
		Open: map[string]http.Handler{
			"/metrics": shared(promhttp.HandlerFor(prometheus.GathererFunc(b.gather), promhttp.HandlerOpts{})),
			"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
			"/readyz":  b.ready(),
		},
	}
	for _, top := range netvirtjson.Tops() {
		cfg.ReadOnly[top] = restconf.ReadOnly{
			Source: b.onceKnown(func(ctx context.Context, asked restconf.Asked) ([]byte, error) {
				return b.netvirtTree(ctx, top, asked.Content == restconf.ContentOperational)
			}),
			Says: "it follows from pods, services, nodes and pools; change those instead",
		}
	}
	for _, list := range []string{northbound.Pods, northbound.Services, northbound.EndpointsList, northbound.Nodes, northbound.Networks} {
		cfg.EntryChecks[list] = func(d *yang.Data) error { return checkEntry(list, d) }
	}
	return cfg
}

// limitedMetric counts what the limits of the server refuse.
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
type jsonSource func(context.Context, restconf.Asked) ([]byte, error)

// Get implements restconf.Source.
func (s jsonSource) Get(ctx context.Context, asked restconf.Asked) (*yang.Data, error) {
	raw, err := s(ctx, asked)
	if err != nil || raw == nil {
		return nil, err
	}
	return yang.DecodeObject(raw, asked.Top)
}

// onceKnown is a tree that is made of what the datastore holds: before all of that is
// known, what is missing in it would look as if it were not there.
func (b *Bridge) onceKnown(write jsonSource) jsonSource {
	return func(ctx context.Context, asked restconf.Asked) ([]byte, error) {
		if err := b.known(); err != nil {
			return nil, err
		}
		return write(ctx, asked)
	}
}

// always is a tree that is the same in both contents.
func always(write func() ([]byte, error)) jsonSource {
	return func(context.Context, restconf.Asked) ([]byte, error) { return write() }
}

// leaves lets the entities' own checks look at data.
type leaves struct{ *yang.Data }

// Each implements northbound.Leaves.
func (l leaves) Each(list string) iter.Seq[northbound.Leaves] {
	return func(yield func(northbound.Leaves) bool) {
		for _, d := range l.All(list) {
			if !yield(leaves{d}) {
				return
			}
		}
	}
}

// checkEntry refuses what is valid by the YANG modules and can't be meant.
func checkEntry(list string, d *yang.Data) error {
	err := northbound.Check(list, leaves{d})
	if err == nil {
		err = checkLengths(d, "")
	}
	var leaf *northbound.LeafError
	if errors.As(err, &leaf) {
		return &yang.Error{Type: "application", Tag: "invalid-value", Path: leaf.Leaf, Message: leaf.Err.Error()}
	}
	return err
}

// maxText is how many bytes a value of an entry may have: as many as a DNS name.
const maxText = 253

// checkLengths refuses texts that are longer than anything that is meant. The modules
// leave the length of their strings open.
func checkLengths(d *yang.Data, at string) error {
	for _, child := range d.Children {
		path := at + child.Node.Name
		if len(child.Value) > maxText {
			return &yang.Error{
				Type: "application", Tag: "too-big", Path: path,
				Message: fmt.Sprintf("it has %d bytes; want %d at most", len(child.Value), maxText),
			}
		}
		if err := checkLengths(child, path+"/"); err != nil {
			return err
		}
	}
	return nil
}

// checkPools refuses pools that can't serve beside each other.
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

// checkPool refuses a pool of addresses that are reserved or that a node has. A pool that
// is there already stays: a node that has one of its addresses since then is a problem.
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
	for addr, n := range ipam.NodeAddresses(b.store.Nodes()) {
		if p.Subnet.Contains(addr) {
			return fmt.Errorf("pool %q, subnet %s: contains %s, the address of node %s", p.Network, p.Subnet, addr, n.Identity())
		}
	}
	return nil
}

// agents is what the nodes' agents may do.
func (b *Bridge) agents() agents {
	most := b.cfg.HTTP.AgentInterfaces
	if most <= 0 {
		most = DefaultAgentInterfaces
	}
	return agents{b.store, b.data.Revision, most, b.cluster != nil, b.requestable}
}

// foreign is what Kubernetes says of what RESTCONF clients write.
func (b *Bridge) foreign() map[string]restconf.Foreign {
	if b.cluster == nil {
		return nil
	}
	return map[string]restconf.Foreign{
		northbound.Pods:          northbound.KubernetesPods(b.store),
		northbound.Services:      northbound.KubernetesServices(b.store),
		northbound.EndpointsList: northbound.KubernetesEndpoints(b.store),
		northbound.Nodes:         northbound.KubernetesNodes(b.store),
	}
}

// gather collects the metrics of the process and of its part.
func (b *Bridge) gather() ([]*dto.MetricFamily, error) {
	return prometheus.Gatherers{b.registry, b.part.Load().registry}.Gather()
}
