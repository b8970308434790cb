package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	largePods    = 10_000
	readRounds   = 5
	readRatio    = 1.3
	restartBound = 10 * time.Second
	// afterRestart is the time for which a bridge in sync is watched for writes.
	afterRestart = 20 * time.Second
)

var largeCluster = synth.Cluster{Nodes: 50, Namespaces: 100}

// measureLarge writes 10,000 pods to the controller. It measures how the backend reads them, and
// how a bridge starts that finds them in the controller.
func measureLarge(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	b.Say("10,000 pods: choosing their addresses")
	dir, err := b.known(ctx, largeCluster, largePods)
	if err != nil {
		return nil, err
	}
	if err := b.controller.fresh(ctx); err != nil {
		return nil, err
	}
	took, err := b.timeStart(ctx, dir, b.controller.URL, largePods)
	if err != nil {
		return nil, err
	}
	b.Say("10,000 pods: written in %s", figures.Short(took))
	if err := b.controller.settle(ctx); err != nil {
		return nil, err
	}
	read, err := b.compareReads(ctx)
	if err != nil {
		return nil, err
	}
	restart, err := b.measureRestart(ctx, dir)
	if err != nil {
		return nil, err
	}
	return append([]figures.Figure{read.atMost("Read of 10,000 pods' objects", readRatio)}, restart...), nil
}

// compareReads measures a Read of the backend, alternating with a bare client. The client gets the
// same containers, as many at the same time, and decodes each into structs with the same leaves.
func (b *bench) compareReads(ctx context.Context) (sum comparison, err error) {
	backend, err := odl.New(b.backendAt(b.controller.URL), b.log)
	if err != nil {
		return sum, err
	}
	defer backend.Close()
	if _, err := backend.Read(ctx); err != nil { // the first Read detects the release of the controller
		return sum, err
	}
	for n := range readRounds {
		one, err := b.readRound(ctx, backend)
		if err != nil {
			return sum, err
		}
		b.Say("reading 10,000 pods, round %d of %d: backend %s, bare client %s", n+1, readRounds, figures.Short(one.ours), figures.Short(one.bare))
		sum.ours += one.ours / readRounds
		sum.bare += one.bare / readRounds
	}
	return sum, nil
}

func (b *bench) readRound(ctx context.Context, backend *odl.Backend) (one comparison, err error) {
	begun := time.Now()
	have, err := backend.Read(ctx)
	one.ours = time.Since(begun)
	if err == nil && len(have) < largePods*objectsPerPod {
		err = fmt.Errorf("the backend reads %d objects of %d pods", len(have), largePods)
	}
	if err != nil {
		return one, err
	}
	begun = time.Now()
	entries, err := b.controller.readBare(ctx)
	one.bare = time.Since(begun)
	if err == nil && entries < largePods*podWrites {
		err = fmt.Errorf("the bare client reads %d entries of %d pods", entries, largePods)
	}
	return one, err
}

// measureRestart starts a bridge whose pods the controller already has, through a wire. It watches
// the bridge until it has read the controller once more.
func (b *bench) measureRestart(ctx context.Context, dir string) (all []figures.Figure, err error) {
	w, err := startWire(b.controller.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	begun := time.Now()
	r, err := b.open(ctx, dir, w.URL)
	if err != nil {
		return nil, err
	}
	r.bridge.Start(ctx)
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.awaitSync(ctx, largePods); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	b.Say("a bridge is in sync with the 10,000 pods after %s; watching its requests", figures.Short(took))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(afterRestart):
	}
	var writes int
	for _, q := range w.Seen() {
		if q.Writes() {
			writes++
		}
	}
	return []figures.Figure{
		figures.AtMost("restart with 10,000 pods in sync: to in sync", took, restartBound),
		{Name: "restart with 10,000 pods in sync: writes", Measured: fmt.Sprint(writes), Bound: "none", Within: writes == 0},
	}, nil
}
