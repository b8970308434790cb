package main

import (
	"context"
	"errors"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

const largeTimeout = 3 * time.Minute // until all pods are annotated

// measureLarge stops a bridge that has finished its work for 50,000 pods on 1,000 nodes and for
// 5,000 services, and starts it again. The API server is a fake with all objects in memory, because
// it takes minutes to create them in a real one.
func measureLarge(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	api, err := serveLarge(b.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	nb, err := ovsdb.Run()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nb.Close()) }()
	dir, err := b.Folder("large")
	if err != nil {
		return nil, err
	}
	start := func() (*process.Bridge, error) {
		return process.Start(ctx, b.config(api.Kubeconfig, nb, process.OnFolder(dir), process.Unlimited))
	}
	b.Say("50,000 pods, 1,000 nodes, 5,000 services: choosing and writing all that there is to choose and to write")
	if err := settleLarge(ctx, b, api, start); err != nil {
		return nil, err
	}
	b.Say("starting again with all of that")
	r, err := process.Restart(ctx, nb, largePods, start)
	if err != nil {
		return nil, err
	}
	return r.Figures("50,000 pods, 1,000 nodes, 5,000 services", 8*time.Second, 600), nil
}

// settleLarge starts a bridge, and waits until it has finished its work.
func settleLarge(ctx context.Context, b *bench, api *synthapi.API, start func() (*process.Bridge, error)) (err error) {
	br, err := start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if _, err := br.AwaitSync(ctx, largePods); err != nil {
		return err
	}
	memory, err := br.Resident()
	if err != nil {
		return err
	}
	b.Say("the rows are written; %.0f MiB are resident, and %d pods annotated", memory/process.Megabyte, api.Annotated())
	within, cancel := context.WithTimeout(ctx, largeTimeout)
	defer cancel()
	if err := api.AwaitAnnotations(within, largePods); err != nil {
		return err
	}
	return br.AwaitTold(ctx, largePods)
}
