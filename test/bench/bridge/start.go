package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/nbcopy"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	startPods   = 5000
	startRounds = 3
	startRate   = 0.7
)

// measureStart starts a bridge that has 5,000 pods and their leases in its datastore, with an empty
// northbound database without northd. The measured time is from the start of its parts until all
// rows are on the disk of the database. In this time the bridge reads the pods from the datastore,
// compares them with their leases, reads the database, maps and writes. The start of the embedded
// etcd comes before, and is not measured. A bare client then writes the same rows to another
// database.
func measureStart(ctx context.Context, b *bench) ([]figures.Figure, error) {
	dir, err := b.Folder("start")
	if err != nil {
		return nil, err
	}
	b.Say("5,000 pods known at start: choosing their addresses")
	if err := b.known(ctx, dir); err != nil {
		return nil, err
	}
	var sum comparison
	for n := range startRounds {
		one, err := b.startOnce(ctx, dir)
		if err != nil {
			return nil, err
		}
		b.Say("5,000 pods known at start, round %d of %d: bridge %s, bare client %s", n+1, startRounds, figures.Short(one.ours), figures.Short(one.bare))
		sum.ours += one.ours
		sum.bare += one.bare
	}
	return []figures.Figure{{
		Name: "5,000 pods known at start, 10 nodes, 20 namespaces: to all NB rows",
		Measured: fmt.Sprintf("%.2f of the bare client's rate (%s, bare %s)",
			sum.rate(), figures.Short(sum.ours/startRounds), figures.Short(sum.bare/startRounds)),
		Bound: fmt.Sprintf("at least %g", startRate), Within: sum.rate() >= startRate,
	}}, nil
}

// known fills a data folder with the pods and their leases.
func (b *bench) known(ctx context.Context, dir string) error {
	r, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return err
	}
	return errors.Join(r.fill(ctx, synth.Cluster{Nodes: 10, Namespaces: 20}, startPods, 1000), r.stop())
}

func (b *bench) startOnce(ctx context.Context, dir string) (c comparison, err error) {
	ours, err := ovsdb.Run()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	if c.ours, err = b.timeStart(ctx, dir, ours.Endpoint()); err != nil {
		return c, err
	}
	bare, err := ovsdb.Run()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	ports, took, err := nbcopy.Copy(ctx, ours.Endpoint(), bare.Endpoint())
	if err != nil {
		return c, err
	}
	if ports < startPods {
		return c, fmt.Errorf("the database has %d ports, want one for each of %d pods", ports, startPods)
	}
	c.bare = took
	return c, nil
}

func (b *bench) timeStart(ctx context.Context, dir, endpoint string) (time.Duration, error) {
	r, err := b.open(ctx, dir, ovnBackend(endpoint))
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	r.bridge.Start(ctx)
	err = r.awaitSync(ctx, startPods)
	took := time.Since(begun)
	return took, errors.Join(err, r.stop())
}
