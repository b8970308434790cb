package bridge

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

// Planned is what documents become.
type Planned struct {
	// Changes are what would be made, in that order.
	Changes []netvirt.Change
	// Rows are what the OVN backend would put into an empty northbound database.
	Rows []ovn.Row
	// Problems say what can't be mapped.
	Problems []coe.Problem
	// Skipped are the objects of manifests that a bridge does not watch.
	Skipped []manifest.Skipped
}

// PlanConfig is what a plan shares with a bridge's Config.
type PlanConfig struct {
	Mapping mapping.Settings
	// Pools are there beside those in the documents.
	Pools []dhcppool.Pool
	// NodePools makes every node's pod-cidrs pools of that node.
	NodePools bool
	// Nodes says how nodes are joined with the network.
	Nodes NodesConfig
}

// ipam is how addresses are chosen, for a backend of all kinds.
func (c PlanConfig) ipam() ipam.Config {
	return ipamConfig(c.Mapping, c.Nodes.of(c.Mapping, netvirt.NewKindSet(netvirt.Kinds()...)), 0)
}

// Plan computes what documents become where there is nothing else. It touches
// nothing.
func Plan(ctx context.Context, documents []Document, cfg PlanConfig) (*Planned, error) {
	cfg.Mapping.Limits = ovn.Limits()
	said, err := readDocuments(documents)
	if err != nil {
		return nil, err
	}
	store, refused, err := said.store(ctx, cfg)
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
	return &Planned{netvirt.Diff(nil, want), rows, problems, said.manifests.Skipped}, nil
}

// Trees are the Netvirt objects as RESTCONF shows them: the content of each top
// container that is not empty.
func (p *Planned) Trees() (map[string]json.RawMessage, error) {
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

// store is a store that was told what documents say, and for which addresses were
// chosen; the problems say which pools serve nobody.
func (in *said) store(ctx context.Context, cfg PlanConfig) (*coe.Store, []coe.Problem, error) {
	store := coe.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	pools := cfg.Pools
	add := func(more []dhcppool.Pool) { pools = slices.Concat(pools, more) }
	northbound.NewFeed(store, add, slog.New(slog.DiscardHandler)).Apply(in.entries)
	store.Update(func(tx *coe.Tx) {
		in.manifests.Say(tx)
		tx.SetComplete(coe.Kubernetes)
	})
	if err := dhcppool.Validate(pools, !cfg.Mapping.Isolated()); err != nil {
		return nil, nil, fmt.Errorf("plan pools: %w", err)
	}
	var problems []coe.Problem
	if cfg.NodePools {
		var ofNodes []dhcppool.Pool
		ofNodes, problems = ipam.NodePools(store.Nodes(), pools, cfg.ipam().Ranges())
		add(ofNodes)
	}
	problems = append(problems, ipam.SmallPools(pools, store.Nodes(), store.Namespaces())...)
	return store, problems, in.choose(ctx, store, pools, cfg)
}

// choose chooses addresses, and then tells the store which pods serve the services
// that select them.
func (in *said) choose(ctx context.Context, store *coe.Store, pools []dhcppool.Pool, cfg PlanConfig) error {
	assigner := ipam.New(cfg.ipam(), store, forgetful{}, slog.New(slog.DiscardHandler))
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

// leasedAddresses are the addresses of pods' primary interfaces by the pods' uids.
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

// forgetful is a journal for what need not be remembered.
type forgetful struct{}

func (forgetful) Load(context.Context) (map[string][]byte, error) { return nil, nil }
func (forgetful) MaxOps() int                                     { return 1000 }
func (forgetful) Commit(context.Context, map[string][]byte, []string) error {
	return nil
}
