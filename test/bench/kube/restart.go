package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

// measureRestart stops a bridge that has finished its work for 5,000 pods, and starts it again.
func measureRestart(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	r, err := process.Restart(ctx, w.nb, pods, func() (*process.Bridge, error) { return w.start(ctx, process.Unlimited) })
	if err != nil {
		return nil, err
	}
	return r.Figures("5,000 pods", time.Second, 120), nil
}
