package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	burstPods   = 2000
	burstEvery  = 5 * time.Millisecond
	burstFactor = 1.0 / 20
)

// measureBurst measures the processor time of northd for 2,000 pods that arrive in 10 s: written by the bridge, and by a client that
// writes the same rows in a transaction for each pod.
func measureBurst(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	c, err := b.newCluster(ctx, spec{layout: ovn.LayoutNode, load: kube.PodLoad{Count: arrivalBase, Namespaces: 20, Nodes: 10}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	ours, err := c.burst(ctx, func(_ context.Context, i int) error { return c.pods.Resize(c.load.Count + i + 1) })
	if err != nil {
		return nil, err
	}
	b.Say("2,000 pods have arrived, written by the bridge")
	rows, err := c.further(ctx, burstPods)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.deleteFurther(ctx), c.stopBridge()); err != nil {
		return nil, err
	}
	bare, err := c.burst(ctx, rows.insert)
	if err != nil {
		return nil, err
	}
	ratio := float64(ours) / float64(bare)
	return []figures.Figure{{
		Name:     "2,000 pods arrive in 10 s, layout node: processor time of northd",
		Measured: fmt.Sprintf("%.3f of that for a transaction for each pod (%s, %s)", ratio, figures.Short(ours), figures.Short(bare)),
		Bound:    fmt.Sprintf("at most %g", burstFactor), Within: ratio <= burstFactor,
	}}, nil
}

// burst makes the pods come at a steady pace, and returns the processor time that northd takes until it has translated all.
func (c *cluster) burst(ctx context.Context, come func(context.Context, int) error) (time.Duration, error) {
	before, err := c.processorTime(ctx)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(burstEvery)
	defer tick.Stop()
	for i := range burstPods {
		if err := come(ctx, i); err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
	if err := c.await(ctx, burstPods); err != nil {
		return 0, err
	}
	after, err := c.processorTime(ctx)
	return after - before, err
}
