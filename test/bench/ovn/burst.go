package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
)

// burst is a load of new pods at a steady pace, beside others.
type burst struct {
	name        string
	base, nodes int
	pods        int
	every       time.Duration
}

// burstFactor is the bound of the processor time of northd, against a transaction for each pod.
const burstFactor = 1.0 / 20

// measureBurst measures the processor time of northd for 2,000 pods that arrive in 10 s.
func measureBurst(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	return b.burst(ctx, burst{"2,000 pods arrive in 10 s", 2000, 10, 2000, 5 * time.Millisecond})
}

// measureSteady measures the same for 20 pods a second beside 5,000.
func measureSteady(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	all, err = b.burst(ctx, burst{"20 pods/s for 20 s on 5,000", 5000, 50, 400, 50 * time.Millisecond})
	for i := range all {
		all[i].Bound = ""
	}
	return all, err
}

// burst lets the pods come, written by the bridge, and by a client that writes the same rows in a transaction for each pod.
func (b *bench) burst(ctx context.Context, w burst) (all []figures.Figure, err error) {
	c, err := b.newCluster(ctx, spec{layout: ovn.LayoutNode, load: kube.PodLoad{Count: w.base, Namespaces: 20, Nodes: w.nodes}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	seen := &arrivals{cluster: c, at: map[string]time.Time{}}
	watch, err := nbwatch.StartTranslated(ctx, c.lab.NB.Remote, seen.note)
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	ours, err := seen.burst(ctx, w, func(_ context.Context, i int) error { return c.pods.Resize(c.load.Count + i + 1) })
	if err != nil {
		return nil, err
	}
	b.Say("%s, written by the bridge", w.name)
	rows, err := c.further(ctx, w.pods)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.deleteFurther(ctx), c.stopBridge()); err != nil {
		return nil, err
	}
	bare, err := seen.burst(ctx, w, rows.insert)
	if err != nil {
		return nil, err
	}
	ratio := float64(ours.northd) / float64(bare.northd)
	name := w.name + ", layout node: "
	all = append(all, figures.Figure{
		Name:     name + "processor time of northd",
		Measured: fmt.Sprintf("%.3f of that for a transaction for each pod (%s, %s)", ratio, figures.Short(ours.northd), figures.Short(bare.northd)),
		Bound:    fmt.Sprintf("at most %g", burstFactor), Within: ratio <= burstFactor,
	})
	for _, p := range []int{50, 99} {
		all = append(all, figures.Unbound(fmt.Sprintf("%spod known to translated, p%d", name, p),
			fmt.Sprintf("%s (bare client %s)", figures.Short(figures.Percentile(ours.took, p)), figures.Short(figures.Percentile(bare.took, p)))))
	}
	return all, nil
}

// burstCost is the processor time that northd took until it had translated all pods, and the time that each pod took, sorted.
type burstCost struct {
	northd time.Duration
	took   []time.Duration
}

// burst makes the pods come at a steady pace.
func (a *arrivals) burst(ctx context.Context, w burst, come func(context.Context, int) error) (cost burstCost, err error) {
	before, err := a.processorTime(ctx)
	if err != nil {
		return cost, err
	}
	if cost.took, err = a.round(ctx, w.pods, w.every, come); err != nil {
		return cost, err
	}
	if err := a.await(ctx, w.pods); err != nil {
		return cost, err
	}
	slices.Sort(cost.took)
	after, err := a.processorTime(ctx)
	cost.northd = after - before
	return cost, err
}
