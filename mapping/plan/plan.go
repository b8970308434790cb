// Package plan computes what documents would become in an empty network, what they would change
// in a running cluster, and what a move from one backend to another would change. It writes
// nothing.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// Plan is what documents would become, or change in a running cluster.
type Plan struct {
	Changes  []netvirt.Change // in the order in which they would be written
	Rows     []RowChange      // in the northbound database of OVN
	Problems []coe.Problem    // what cannot be mapped; of a running cluster, what could before is new
	Skipped  []manifest.Skipped
	// Unaddressed is how many pods of the running cluster have no address in the plan, because no pool of Config has it. Services
	// do not lead to them.
	Unaddressed int
	// Paths are the connections that the documents would allow or deny in the running cluster,
	// and Cost what its policies cost before and after. They are nil if there is no cluster.
	Paths []policy.Change
	Cost  *CostChange
	// Ways are the ways by which clients outside would reach services, or not any more.
	Ways []WayChange
	// Layout is what a change of the layout costs the network that has the documents; nil if Config.ChangeLayout is not set.
	Layout *LayoutChange
}

// RowChange is a change of a row: "insert", "update", or "delete" with the former content.
type RowChange struct {
	Operation string `json:"operation"`
	preview.Row
}

// CostChange is the Cost before and after a change.
type CostChange struct {
	Before Cost `json:"before"`
	After  Cost `json:"after"`
}

// Config has the settings that a plan shares with a bridge.
type Config struct {
	Mapping mapping.Settings
	// Layout is the layout of the rows of OVN, for Compute only. With ChangeLayout the network is changed to it from the other one.
	Layout       codec.Layout
	ChangeLayout bool
	// Pools are used beside the pools of the documents.
	Pools []dhcppool.Pool
	// NodePools makes every node's pod-cidrs pools of that node.
	NodePools bool
	// Nodes says how nodes are joined with the network.
	Nodes ranges.NodesConfig
	// Running has the objects of the running cluster to which the documents are applied; nil if
	// the network is empty.
	Running *manifest.Set
}

// nodes is how nodes are joined with the network by a backend of all kinds.
func (c Config) nodes() ranges.NodesConfig {
	nodes := c.Nodes.For(netvirt.NewKindSet(netvirt.Kinds()...), c.Mapping.Isolated())
	if c.Mapping.Separates() {
		return nodes.Closed()
	}
	return nodes
}

// in returns the configuration for a layout.
func (c Config) in(layout codec.Layout) Config {
	c.Layout, c.Mapping.Isolation = layout, c.Mapping.Isolation.OnSwitches(layout == codec.LayoutNode)
	if c.Mapping.Separates() { // no pod reaches machines then: the bridge would refuse to start
		c.Mapping.Physical, c.Nodes.Physical = nil, nil
	}
	nodes := c.nodes()
	c.Mapping.Limits, c.Mapping.ManagementPorts = layout.Limits(), nodes.ManagementPorts()
	c.Mapping.NodePorts, c.Mapping.HostPorts, c.Mapping.NodesIPv6 = nodes.ServedPorts(), nodes.ServedHostPorts(), nodes.HasIPv6()
	c.Mapping.External = netvirt.NewPrefixList(nodes.External...)
	return c
}

// Compute computes the plan of documents. If the documents have chassis of nodes, agents have reported these alone. Otherwise an agent on
// each node has reported one. Addresses and numbers that a bridge chose for a running
// cluster, and that its objects do not have, can differ from the chosen ones here.
func Compute(ctx context.Context, documents []Document, cfg Config) (*Plan, error) {
	cfg = cfg.in(cfg.Layout)
	in, err := readDocuments(documents)
	if err != nil {
		return nil, err
	}
	p := &Plan{Skipped: in.manifests.Skipped}
	for _, e := range in.manifests.EgressIPs {
		p.Skipped = append(p.Skipped, manifest.Skipped{Kind: "EgressIP", Name: e.Name, Where: "the manifests", Message: "a running bridge chooses the nodes that hold the address"})
	}
	n := newNetwork(cfg)
	var (
		before     mapped
		waysBefore []Way
	)
	if cfg.Running != nil {
		reported := northbound.Batch{Entries: of(in.entries.Entries, northbound.Chassis)}
		if before, err = n.put(ctx, &input{entries: reported, manifests: *cfg.Running}); err != nil {
			return nil, fmt.Errorf("running cluster: %w", err)
		}
		p.Unaddressed = unaddressed(before.problems)
		if waysBefore, err = n.ways(before.model, cfg.Running); err != nil {
			return nil, err
		}
		changed := cfg.Running.With(&in.manifests)
		if p.Paths, err = paths(cfg.Running, changed); err != nil {
			return nil, err
		}
		in.manifests = *changed
	}
	after, err := n.put(ctx, in)
	if err != nil {
		return nil, err
	}
	waysAfter, err := n.ways(after.model, &in.manifests)
	if err != nil {
		return nil, err
	}
	p.Ways = wayChanges(waysBefore, waysAfter)
	p.Changes, p.Rows = netvirt.Diff(before.model, after.model), rowChanges(before.rows, after.rows)
	p.Problems = append(p.Problems, NewProblems(before.problems, after.problems)...)
	if cfg.Running != nil {
		p.Cost = &CostChange{costOf(before), costOf(after)}
	}
	if cfg.ChangeLayout {
		p.Layout, err = layoutChange(ctx, in, cfg)
	}
	return p, err
}

// unaddressed returns how many pods have a problem with their address.
func unaddressed(problems []coe.Problem) int {
	pods := map[string]bool{}
	for _, p := range problems {
		if p.Kind == "pod" && (p.Reason == coe.AddressInvalid || p.Reason == coe.NoAddress) {
			pods[p.UID] = true
		}
	}
	return len(pods)
}

// NewProblems returns the problems that are not known, in their order and each once.
func NewProblems(known, problems []coe.Problem) (more []coe.Problem) {
	is := make(map[coe.Problem]bool, len(known))
	for _, p := range known {
		is[p] = true
	}
	for _, p := range problems {
		if !is[p] {
			is[p] = true
			more = append(more, p)
		}
	}
	return more
}

// paths returns what a change of a cluster opens and closes.
func paths(before, after *manifest.Set) ([]policy.Change, error) {
	then, err := before.World()
	if err != nil {
		return nil, err
	}
	now, err := after.World()
	if err != nil {
		return nil, err
	}
	return policy.Compare(policy.Compile(then), policy.Compile(now)), nil
}

// rowChanges compares rows.
func rowChanges(before, after []preview.Row) []RowChange {
	type key struct{ table, uuid string }
	old := make(map[key]preview.Row, len(before))
	for _, r := range before {
		old[key{r.Table, r.UUID}] = r
	}
	var changes []RowChange
	for _, r := range after {
		was, found := old[key{r.Table, r.UUID}]
		delete(old, key{r.Table, r.UUID})
		switch {
		case !found:
			changes = append(changes, RowChange{"insert", r})
		case !reflect.DeepEqual(was.Columns, r.Columns):
			changes = append(changes, RowChange{"update", r})
		}
	}
	for _, r := range before {
		if _, gone := old[key{r.Table, r.UUID}]; gone {
			changes = append(changes, RowChange{"delete", r})
		}
	}
	return changes
}

// Trees returns the Netvirt objects that the plan creates or changes, as RESTCONF shows them: the
// content of each top container that is not empty.
func (p *Plan) Trees() (map[string]json.RawMessage, error) {
	objects := func(yield func(netvirt.Object) bool) {
		for _, c := range p.Changes {
			if c.New != nil && !yield(c.New) {
				return
			}
		}
	}
	trees := map[string]json.RawMessage{}
	for _, top := range netvirtjson.Tops() {
		tree, err := netvirtjson.Tree(top, objects)
		if err != nil {
			return nil, err
		}
		if tree != nil {
			trees[top] = tree
		}
	}
	return trees, nil
}

// network is what a bridge knows.
type network struct {
	cfg      Config
	store    *state.Store
	feed     *northbound.Feed
	pools    []dhcppool.Pool
	allPools []dhcppool.Pool // also the pools of nodes, at the last put
	journal  journal
	assigner *ipam.Assigner
	revision int64
}

// mapped is what a network is mapped to.
type mapped struct {
	layout   codec.Layout
	model    netvirt.Model
	written  *preview.Database
	rows     []preview.Row // of written
	problems []coe.Problem
}

func newNetwork(cfg Config) *network {
	n := &network{cfg: cfg, store: state.NewStore(nil, coe.RESTCONF, coe.Kubernetes), pools: cfg.Pools, journal: journal{}}
	n.feed = northbound.NewFeed(n.store, func(more []dhcppool.Pool) { n.pools = slices.Concat(n.pools, more) }, slog.New(slog.DiscardHandler))
	return n
}

// put puts all that is known into the network, chooses addresses, and maps. The problems also name
// pools that serve no pods.
func (n *network) put(ctx context.Context, in *input) (s mapped, err error) {
	n.revision++
	in.entries.Revision, in.entries.Snapshot = n.revision, true
	n.feed.Apply(in.entries)
	n.store.Update(func(tx *state.Tx) {
		in.manifests.Put(tx)
		tx.SetComplete(coe.Kubernetes)
	})
	if len(of(in.entries.Entries, northbound.Chassis)) == 0 {
		n.reportChassis()
	}
	pools := n.pools
	if err := dhcppool.Validate(pools, !n.cfg.Mapping.Isolated()); err != nil {
		return s, fmt.Errorf("plan pools: %w", err)
	}
	var refused []coe.Problem
	if n.cfg.NodePools {
		var ofNodes []dhcppool.Pool
		ofNodes, refused = ranges.NodePools(n.store.Nodes(), pools, n.cfg.nodes().Ranges())
		pools = slices.Concat(pools, ofNodes)
	}
	n.allPools = pools
	refused = append(refused, ranges.SmallPools(pools, n.takers())...)
	if err := n.choose(ctx, in, pools); err != nil {
		return s, err
	}
	s = n.state()
	s.problems = append(s.problems, refused...)
	if s.written, err = preview.New(s.model, n.cfg.Layout); err != nil {
		return s, err
	}
	s.rows = s.written.Rows()
	return s, nil
}

// reportChassis puts a chassis for each node, as agents report them.
func (n *network) reportChassis() {
	nodes := n.store.Nodes()
	n.store.Update(func(tx *state.Tx) {
		for addr, node := range nodes {
			tx.PutChassis(&coe.Chassis{Node: addr, Name: node.Identity()})
		}
	})
}

// takers returns what the pools serve.
func (n *network) takers() ranges.Takers {
	return ranges.Takers{Nodes: n.store.Nodes(), Namespaces: n.store.Namespaces(), NodeBlocks: n.cfg.Mapping.Limits.NodeGateways}
}

// state maps the network.
func (n *network) state() (s mapped) {
	s.layout = n.cfg.Layout
	s.model, s.problems = mapping.Scope(n.store, netvirt.Cluster, n.cfg.Mapping)
	for _, ns := range n.store.Namespaces() {
		model, more := mapping.Scope(n.store, netvirt.Scope(ns), n.cfg.Mapping)
		maps.Copy(s.model, model)
		s.problems = append(s.problems, more...)
	}
	return s
}

// choose chooses addresses, and then adds the endpoints that services select to the store.
func (n *network) choose(ctx context.Context, in *input, pools []dhcppool.Pool) error {
	if n.assigner == nil {
		cfg := ipam.Config{Isolated: n.cfg.Mapping.Isolated(), NodeBlocks: n.cfg.Mapping.Limits.NodeGateways, Nodes: n.cfg.nodes()}
		n.assigner = ipam.New(cfg, n.store, n.journal, slog.New(slog.DiscardHandler))
		if err := n.assigner.Load(ctx); err != nil {
			return err
		}
	}
	n.assigner.SetPools(pools)
	if _, _, err := n.assigner.Sync(ctx, n.store.Namespaces()); err != nil {
		return err
	}
	selected := in.manifests.SelectedEndpoints(leasedAddresses(n.store))
	n.store.Update(func(tx *state.Tx) {
		for _, e := range selected {
			tx.PutEndpoints(coe.Kubernetes, e)
		}
	})
	return nil
}

// leasedAddresses returns the addresses of the primary interface of a pod.
func leasedAddresses(store *state.Store) func(podUID string) []netip.Addr {
	addresses := map[string][]netip.Addr{}
	for _, ns := range store.Namespaces() {
		for _, lease := range store.View(ns).Leases {
			for _, a := range lease.Addresses {
				if lease.Primary {
					addresses[lease.PodUID] = append(addresses[lease.PodUID], a.Address)
				}
			}
		}
	}
	return func(podUID string) []netip.Addr { return addresses[podUID] }
}
