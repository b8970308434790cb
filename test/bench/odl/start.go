package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	startPods   = 2000
	startRounds = 2
	startRate   = 0.8
)

var startCluster = synth.Cluster{Nodes: 10, Namespaces: 20}

// measureStart starts a bridge that has 2,000 pods and their leases in its datastore, with an empty
// controller. The measured time is from the start of its parts until the controller has accepted
// all objects. In this time the bridge reads the pods from the datastore, detects the release of
// the controller, reads the controller, maps and writes.
//
// The references alternate with the bridge, each on a controller that was just started. The first
// client sends the same requests: a request follows the answers to the requests that it depends on.
// The second one sends the writes in no order. The third one puts the same pods to the
// controller's own COE northbound, one after the other.
func measureStart(ctx context.Context, b *bench) ([]figures.Figure, error) {
	b.Say("2,000 pods known at start: choosing their addresses, and recording the requests for them")
	dir, err := b.known(ctx, startCluster, startPods)
	if err != nil {
		return nil, err
	}
	sent, err := b.learn(ctx, dir)
	if err != nil {
		return nil, err
	}
	var mean startTimes
	for n := range startRounds {
		one, err := b.startRound(ctx, dir, sent)
		if err != nil {
			return nil, err
		}
		b.Say("2,000 pods known at start, round %d of %d: bridge %s, bare client (%d requests) %s, in no order %s, put to COE %s",
			n+1, startRounds, figures.Short(one.bridge), len(sent), figures.Short(one.bare), figures.Short(one.heedless), figures.Short(one.own))
		mean.bridge += one.bridge / startRounds
		mean.bare += one.bare / startRounds
		mean.heedless += one.heedless / startRounds
		mean.own += one.own / startRounds
	}
	const name = "2,000 pods known at start, to all in OpenDaylight's config datastore"
	bare, heedless, own := comparison{mean.bridge, mean.bare}, comparison{mean.bridge, mean.heedless}, comparison{mean.bridge, mean.own}
	return []figures.Figure{
		figures.Rate(name, fmt.Sprintf("%.2f of the bare client's rate (%s, bare %s)",
			bare.rate(), figures.Short(mean.bridge), figures.Short(mean.bare)), bare.rate(), startRate),
		figures.Unbound(name+", beside all writes in no order", fmt.Sprintf("%.2f of that rate (%s)", heedless.rate(), figures.Short(mean.heedless))),
		figures.Rate(name+", beside its own COE northbound", fmt.Sprintf("%.2f of the rate of single PUTs to that (%s, %s)",
			own.rate(), perSecond(mean.bridge), perSecond(mean.own)), own.rate(), 1),
	}, nil
}

// startTimes has the durations of the bridge and of its references.
type startTimes struct{ bridge, bare, heedless, own time.Duration }

func perSecond(took time.Duration) string {
	return fmt.Sprintf("%.0f pods/s", startPods/took.Seconds())
}

// learn lets a bridge write the pods through a wire, and returns the requests up to the last one
// that writes.
func (b *bench) learn(ctx context.Context, dir string) (sent []wire.Request, err error) {
	w, err := startWire(b.controller.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := b.controller.fresh(ctx); err != nil {
		return nil, err
	}
	_, err = b.timeStart(ctx, dir, w.URL, startPods)
	sent = w.Seen()
	for len(sent) > 0 && !sent[len(sent)-1].Writes() {
		sent = sent[:len(sent)-1]
	}
	return sent, err
}

// startRound measures the bridge and each reference once.
func (b *bench) startRound(ctx context.Context, dir string, sent []wire.Request) (one startTimes, err error) {
	writes := slices.DeleteFunc(slices.Clone(sent), func(q wire.Request) bool { return !q.Writes() })
	for _, turn := range []struct {
		took *time.Duration
		do   func() (time.Duration, error)
	}{
		{&one.bridge, func() (time.Duration, error) { return b.timeStart(ctx, dir, b.controller.URL, startPods) }},
		{&one.bare, func() (time.Duration, error) { return b.controller.replay(ctx, sent) }},
		{&one.heedless, func() (time.Duration, error) { return b.controller.sendAll(ctx, writes, parallel) }},
		{&one.own, func() (time.Duration, error) { return b.controller.sendAll(ctx, ownPuts(), 1) }},
	} {
		if err := b.controller.fresh(ctx); err != nil {
			return one, err
		}
		if *turn.took, err = turn.do(); err != nil {
			return one, err
		}
	}
	return one, nil
}

// ownPuts returns the requests that put the pods to OpenDaylight's own COE northbound.
func ownPuts() []wire.Request {
	all := make([]wire.Request, startPods)
	for i := range all {
		all[i] = wire.Request{Method: http.MethodPut, Path: config + startCluster.PodPath(i), Body: startCluster.PodsBody(i, i+1)}
	}
	return all
}

// replay sends the recorded requests, and returns the total duration. It sends a request when all
// requests are answered whose answers preceded it in the recording.
func (c *controller) replay(ctx context.Context, seen []wire.Request) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := make([]chan struct{}, len(seen))
	for i := range seen {
		answered[i] = make(chan struct{})
	}
	var group sync.WaitGroup
	begun := time.Now()
	for i, q := range seen {
		group.Go(func() {
			defer close(answered[i])
			for j := range i {
				if seen[j].Answered.Before(q.Begun) {
					<-answered[j]
				}
			}
			_, err := c.send(ctx, c.URL, q)
			var status *statusError
			if err != nil && (!errors.As(err, &status) || status.status != q.Status) {
				cancel(err)
			}
		})
	}
	group.Wait()
	return time.Since(begun), context.Cause(ctx)
}

// sendAll sends requests in their order, some at the same time, and returns the total duration.
func (c *controller) sendAll(ctx context.Context, all []wire.Request, some int) (time.Duration, error) {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		fault atomic.Pointer[error]
	)
	begun := time.Now()
	for range some {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all) && fault.Load() == nil; i = int(next.Add(1)) - 1 {
				if _, err := c.send(ctx, c.URL, all[i]); err != nil {
					fault.Store(&err)
				}
			}
		})
	}
	group.Wait()
	took := time.Since(begun)
	if err := fault.Load(); err != nil {
		return 0, *err
	}
	return took, nil
}
