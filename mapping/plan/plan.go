// Package plan computes what documents would become in a network with nothing else in it,
// and what a move from one backend to another would change. It writes nothing.
package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// Plan is what documents would become.
type Plan struct {
	Changes  []netvirt.Change // in the order in which they would be written
	Rows     []ovn.Row        // in an empty northbound database of OVN
	Problems []coe.Problem    // what cannot be mapped
	Skipped  []manifest.Skipped
}

// Config has the settings that a plan shares with a bridge.
type Config struct {
	Mapping mapping.Settings
	// Pools are used beside the pools of the documents.
	Pools []dhcppool.Pool
	// NodePools makes every node's pod-cidrs pools of that node.
	NodePools bool
	// Nodes says how nodes are joined with the network.
	Nodes ipam.NodesConfig
}

// nodes is how nodes are joined with the network by a backend of all kinds.
func (c Config) nodes() ipam.NodesConfig {
	return c.Nodes.For(netvirt.NewKindSet(netvirt.Kinds()...), c.Mapping.Isolated())
}

// Compute computes the plan of documents.
func Compute(ctx context.Context, documents []Document, cfg Config) (*Plan, error) {
	cfg.Mapping.Limits = ovn.Limits()
	in, err := readDocuments(documents)
	if err != nil {
		return nil, err
	}
	store, refused, err := in.store(ctx, cfg)
	if err != nil {
		return nil, err
	}
	want, problems := mapping.Scope(store, netvirt.Cluster, cfg.Mapping)
	problems = append(problems, refused...)
	for _, ns := range store.Namespaces() {
		model, more := mapping.Scope(store, netvirt.Scope(ns), cfg.Mapping)
		maps.Copy(want, model)
		problems = append(problems, more...)
	}
	rows, err := ovn.Rows(want, "")
	if err != nil {
		return nil, err
	}
	return &Plan{netvirt.Diff(nil, want), rows, problems, in.manifests.Skipped}, nil
}

// Trees returns the Netvirt objects as RESTCONF shows them: the content of each top
// container that is not empty.
func (p *Plan) Trees() (map[string]json.RawMessage, error) {
	objects := func(yield func(netvirt.Object) bool) {
		for _, c := range p.Changes {
			if !yield(c.New) {
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

// store returns a store with the content of the documents and chosen addresses. The
// problems name pools that serve no pods.
func (in *input) store(ctx context.Context, cfg Config) (*coe.Store, []coe.Problem, error) {
	store := coe.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	pools := cfg.Pools
	add := func(more []dhcppool.Pool) { pools = slices.Concat(pools, more) }
	northbound.NewFeed(store, add, slog.New(slog.DiscardHandler)).Apply(in.entries)
	store.Update(func(tx *coe.Tx) {
		in.manifests.Put(tx)
		tx.SetComplete(coe.Kubernetes)
	})
	if err := dhcppool.Validate(pools, !cfg.Mapping.Isolated()); err != nil {
		return nil, nil, fmt.Errorf("plan pools: %w", err)
	}
	var problems []coe.Problem
	if cfg.NodePools {
		var ofNodes []dhcppool.Pool
		ofNodes, problems = ipam.NodePools(store.Nodes(), pools, cfg.nodes().Ranges())
		add(ofNodes)
	}
	problems = append(problems, ipam.SmallPools(pools, store.Nodes(), store.Namespaces())...)
	return store, problems, in.choose(ctx, store, pools, cfg)
}

// choose chooses addresses, and then adds the endpoints that services select to the store.
func (in *input) choose(ctx context.Context, store *coe.Store, pools []dhcppool.Pool, cfg Config) error {
	assigner := ipam.New(ipam.Config{Isolated: cfg.Mapping.Isolated(), Nodes: cfg.nodes()}, store, forgetful{}, slog.New(slog.DiscardHandler))
	if err := assigner.Load(ctx); err != nil {
		return err
	}
	assigner.SetPools(pools)
	if _, _, err := assigner.Sync(ctx, store.Namespaces()); err != nil {
		return err
	}
	selected := in.manifests.SelectedEndpoints(leasedAddresses(store))
	store.Update(func(tx *coe.Tx) {
		for _, e := range selected {
			tx.PutEndpoints(coe.Kubernetes, e)
		}
	})
	return nil
}

// leasedAddresses returns the addresses of the primary interface of a pod.
func leasedAddresses(store *coe.Store) func(podUID string) []netip.Addr {
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

// forgetful is a journal that keeps nothing.
type forgetful struct{}

func (forgetful) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (forgetful) MaxOps() int                                     { return 1000 }
func (forgetful) Commit(context.Context, map[string][]byte, []string) error {
	return nil
}
