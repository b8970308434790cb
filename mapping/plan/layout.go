package plan

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/preview"
)

// LayoutChange is what a change from one layout of OVN to another would cost.
type LayoutChange struct {
	From codec.Layout `json:"from"`
	To   codec.Layout `json:"to"`
	// Stages are the network before the change, right after it, and when all pods have been created again.
	Stages []LayoutStage `json:"stages"`
	// Problems are those that are there right after the change, and not before.
	Problems []coe.Problem `json:"problems"`
}

// Stage is a time of a change of the layout.
type Stage string

// The stages. A pod keeps its address until it is created again: then it gets one of the blocks of the new layout.
const (
	StageBefore   Stage = "before"
	StageAfter    Stage = "after"
	StageReplaced Stage = "replaced"
)

// LayoutStage is the network at one stage of a change of the layout.
type LayoutStage struct {
	Stage  Stage        `json:"stage"`
	Layout codec.Layout `json:"layout"`
	Rows   int          `json:"rows"`
	// LogicalFlows is an estimate.
	LogicalFlows int       `json:"logicalFlows"`
	Pools        []PoolUse `json:"pools"` // without pools of services
}

// PoolUse is what is used of a pool, and what fits.
type PoolUse struct {
	Network string       `json:"network"`
	Subnet  netip.Prefix `json:"subnet"`
	Blocks  int          `json:"blocks"` // that are in use
	Pods    int          `json:"pods"`   // that have an address of the pool
	// Fit is the number of pods that fit in a new cluster with these nodes and namespaces; see ranges.Takers. It is an estimate.
	Fit int64 `json:"fit"`
}

// otherLayout returns the layout from which a change to a layout is made.
func otherLayout(to codec.Layout) codec.Layout {
	if to == codec.LayoutNode {
		return codec.LayoutELAN
	}
	return codec.LayoutNode
}

// layoutChange computes what a change to the layout of the configuration costs a network.
func layoutChange(ctx context.Context, in *input, cfg Config) (*LayoutChange, error) {
	c := &LayoutChange{From: otherLayout(cfg.Layout), To: cfg.Layout, Problems: []coe.Problem{}}
	before := newNetwork(cfg.in(c.From))
	then, err := before.put(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("layout %s: %w", c.From, err)
	}
	after := newNetwork(cfg)
	after.journal = before.journal
	now, err := after.put(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("change of the layout to %s: %w", c.To, err)
	}
	replaced := newNetwork(cfg)
	again := &input{entries: in.entries, manifests: *in.manifests.Recreated()}
	later, err := replaced.put(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("layout %s: %w", c.To, err)
	}
	c.Problems = append(c.Problems, NewProblems(then.problems, now.problems)...)
	c.Stages = []LayoutStage{
		before.stage(StageBefore, then), after.stage(StageAfter, now), replaced.stage(StageReplaced, later),
	}
	return c, nil
}

func (n *network) stage(of Stage, s mapped) LayoutStage {
	return LayoutStage{Stage: of, Layout: n.cfg.Layout, Rows: len(s.rows), LogicalFlows: preview.LogicalFlows(s.rows), Pools: n.use()}
}

// use returns the use of all pools of pods.
func (n *network) use() []PoolUse {
	all, census := []PoolUse{}, n.store.Census()
	for _, p := range n.allPools {
		if key := (state.PoolKey{Network: p.Network, Subnet: p.Subnet}); p.Network != coe.ServicePool {
			all = append(all, PoolUse{p.Network, p.Subnet, len(census.Blocks[key]), census.Given[key], n.takers().Fit(p)})
		}
	}
	return all
}

// journal is a journal in memory.
type journal map[string][]byte

func (j journal) Load(context.Context) (map[string][]byte, error) { return maps.Clone(j), nil }
func (journal) MaxOps() int                                       { return 1000 }

// Commit implements journal.Journal.
func (j journal) Commit(_ context.Context, puts map[string][]byte, deletes []string) error {
	maps.Copy(j, puts)
	for _, key := range deletes {
		delete(j, key)
	}
	return nil
}
