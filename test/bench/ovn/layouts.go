package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	layoutPods       = 5000
	layoutNodes      = 50
	layoutNamespaces = 100
	layoutFactor     = 1.0 / 6
	furtherPods      = 100
	furtherFlows     = 4.0
	recomputations   = 3
)

// layoutCost is what the pods of a layout cost northd.
type layoutCost struct {
	flows   int
	took    time.Duration // processor time for computing everything
	memory  float64       // resident, in bytes
	further float64       // logical flows of a further pod
}

// measureLayouts writes the same pods in both layouts, each to an OVN of its own. Every node has a pod of every namespace.
func measureLayouts(ctx context.Context, b *bench) ([]figures.Figure, error) {
	node, err := b.costOf(ctx, ovn.LayoutNode)
	if err != nil {
		return nil, err
	}
	elan, err := b.costOf(ctx, ovn.LayoutELAN)
	if err != nil {
		return nil, err
	}
	const name = "5,000 pods, 50 nodes, 100 namespaces, layout node against elan: "
	part := func(what string, node, elan float64, measured string) figures.Figure {
		ratio := node / elan
		return figures.Figure{
			Name: name + what, Measured: fmt.Sprintf("%.3f (%s)", ratio, measured),
			Bound: fmt.Sprintf("at most %.3f", layoutFactor), Within: ratio <= layoutFactor,
		}
	}
	return []figures.Figure{
		{
			Name: "logical flows of a further pod, layout node", Measured: fmt.Sprintf("%.2f (layout elan %.2f)", node.further, elan.further),
			Bound: fmt.Sprintf("at most %g", furtherFlows), Within: node.further <= furtherFlows,
		},
		part("logical flows", float64(node.flows), float64(elan.flows), fmt.Sprintf("%d, %d", node.flows, elan.flows)),
		part("northd computes everything", node.took.Seconds(), elan.took.Seconds(), figures.Short(node.took)+", "+figures.Short(elan.took)+" of a processor"),
		part("memory of northd", node.memory, elan.memory, fmt.Sprintf("%.0f MiB, %.0f MiB", node.memory/process.Megabyte, elan.memory/process.Megabyte)),
	}, nil
}

func (b *bench) costOf(ctx context.Context, layout ovn.Layout) (cost layoutCost, err error) {
	c, err := b.newCluster(ctx, spec{layout: layout, load: kube.PodLoad{Count: layoutPods, Namespaces: layoutNamespaces, Nodes: layoutNodes}})
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if cost.flows, err = c.flows(ctx); err != nil {
		return cost, err
	}
	before, err := c.processorTime(ctx)
	if err != nil {
		return cost, err
	}
	for range recomputations {
		if _, err := c.lab.NorthdCtl(ctx, "inc-engine/recompute"); err != nil {
			return cost, err
		}
	}
	after, err := c.processorTime(ctx)
	if err != nil {
		return cost, err
	}
	cost.took = (after - before) / recomputations
	pid, err := c.lab.Northd.PID()
	if err != nil {
		return cost, err
	}
	if cost.memory, err = child.Memory(pid, "VmRSS:"); err != nil {
		return cost, err
	}
	if err := c.pods.Resize(layoutPods + furtherPods); err != nil {
		return cost, err
	}
	if err := errors.Join(c.await(ctx, furtherPods), c.sync(ctx)); err != nil {
		return cost, err
	}
	all, err := c.flows(ctx)
	cost.further = float64(all-cost.flows) / furtherPods
	return cost, err
}
