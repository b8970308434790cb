package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	memoryPods  = 50_000
	memoryNodes = 100
	memoryBound = 120.0 // MB
	replicas    = 10
)

// measureMemory compares the resident memory of two bridges with 50,000 pods. The pods of one have labels and
// named ports, ten replicas the same ones, and there are 1,000 policies.
func measureMemory(ctx context.Context, b *bench) ([]figures.Figure, error) {
	with := large()
	with.load.Count, with.load.Nodes = memoryPods, memoryNodes
	some := with.labels
	with.labels = func(i int) map[string]string {
		all := some(i)
		set := i / largeNamespaces / replicas
		all["app.kubernetes.io/name"] = fmt.Sprintf("application-%d-of-namespace-%d", set, i%largeNamespaces)
		all["app.kubernetes.io/managed-by"] = "helm"
		all["pod-template-hash"] = fmt.Sprintf("%08x", set*largeNamespaces+i%largeNamespaces)
		return all
	}
	without := spec{load: with.load}
	full, err := b.resident(ctx, with)
	if err != nil {
		return nil, err
	}
	bare, err := b.resident(ctx, without)
	if err != nil {
		return nil, err
	}
	more := (full - bare) / process.Megabyte
	return []figures.Figure{{
		Name:     "memory for labels, ports and 1,000 policies with 50,000 pods",
		Measured: fmt.Sprintf("%.0f MiB (%.0f MiB, without %.0f MiB)", more, full/process.Megabyte, bare/process.Megabyte),
		Bound:    fmt.Sprintf("at most %g MiB", memoryBound), Within: more <= memoryBound,
	}}, nil
}

// resident returns the resident memory of a bridge that has written a cluster.
func (b *bench) resident(ctx context.Context, s spec) (memory float64, err error) {
	c, err := b.newCluster(s)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.api.Close()) }()
	nb, err := ovsdb.Run()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, nb.Close()) }()
	b.Say("50,000 pods and %d policies: choosing and writing", s.policies)
	br, err := b.start(ctx, c, nb.Endpoint())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if err := br.AwaitTold(ctx, memoryPods); err != nil {
		return 0, err
	}
	memory, _, err = br.Settled(ctx)
	return memory, err
}
