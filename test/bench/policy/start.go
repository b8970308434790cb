package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const startBound = 5 * time.Second

// measureStart stops a bridge that has finished its work for a large cluster, and starts it again.
func measureStart(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	c, err := b.newCluster(large())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.api.Close()) }()
	nb, err := ovsdb.Run()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nb.Close()) }()
	b.Say("10,000 pods and 1,000 policies: choosing and writing")
	br, err := b.start(ctx, c, nb.Endpoint())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(br.AwaitTold(ctx, largePods), br.Stop()); err != nil {
		return nil, err
	}
	b.Say("starting again")
	r, err := process.Restart(ctx, nb, largePods, func() (*process.Bridge, error) { return b.run(ctx, c, nb.Endpoint()) })
	if err != nil {
		return nil, err
	}
	const of = "10,000 pods and 1,000 policies"
	return []figures.Figure{figures.AtMost("restart with "+of+": process start to in sync", r.Took, startBound), r.Transactions(of)}, nil
}
