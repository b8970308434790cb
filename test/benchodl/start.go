package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	startPods   = 2000
	startRounds = 2
	startRate   = 0.8
)

var startCluster = synth.Cluster{Nodes: 10, Namespaces: 20}

// measureStart starts a bridge that knows 2,000 pods and their leases, with a controller
// that has none of them. Measured is the time from the start of its parts until the
// controller has taken all: reading the pods from the datastore, finding out how the
// controller is spoken to, reading what it has, mapping, and writing. By turns with that
// a bare client sends the same requests, as many at once as the bridge; and another puts
// the same pods to the controller's own COE northbound, one after the other. Each of them
// finds the controller just started.
func measureStart(ctx context.Context, b *bench) ([]figures.Figure, error) {
	b.say("2,000 pods known at start: choosing their addresses, and learning what is sent for them")
	dir, err := b.known(ctx, startCluster, startPods)
	if err != nil {
		return nil, err
	}
	sent, err := b.learn(ctx, dir)
	if err != nil {
		return nil, err
	}
	var sum comparison
	var own time.Duration
	for n := range startRounds {
		one, coe, err := b.startRound(ctx, dir, sent)
		if err != nil {
			return nil, err
		}
		b.say("2,000 pods known at start, round %d of %d: bridge %s, bare client (%d requests) %s, put to COE %s",
			n+1, startRounds, figures.Short(one.ours), len(sent), figures.Short(one.bare), figures.Short(coe))
		sum.ours += one.ours
		sum.bare += one.bare
		own += coe
	}
	const name = "2,000 pods known at start, to all in OpenDaylight's config datastore"
	coe := comparison{sum.ours, own}
	return []figures.Figure{
		figures.Rate(name, fmt.Sprintf("%.2f of the bare client's rate (%s, bare %s)",
			sum.rate(), figures.Short(sum.ours/startRounds), figures.Short(sum.bare/startRounds)), sum.rate(), startRate),
		figures.Rate(name+", beside its own COE northbound", fmt.Sprintf("%.2f of the rate of single PUTs to that (%s, %s)",
			coe.rate(), perSecond(sum.ours), perSecond(own)), coe.rate(), 1),
	}, nil
}

func perSecond(all time.Duration) string {
	return fmt.Sprintf("%.0f pods/s", float64(startPods*startRounds)/all.Seconds())
}

// learn has a bridge write the pods over a wire, and returns the requests.
func (b *bench) learn(ctx context.Context, dir string) (sent []written, err error) {
	w, err := startWire(b.controller.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := b.controller.fresh(ctx); err != nil {
		return nil, err
	}
	_, err = b.timeStart(ctx, dir, w.URL, startPods)
	return w.seen(), err
}

// startRound has all that is compared take its turn.
func (b *bench) startRound(ctx context.Context, dir string, sent []written) (one comparison, coe time.Duration, err error) {
	for _, turn := range []struct {
		took *time.Duration
		do   func() (time.Duration, error)
	}{
		{&one.ours, func() (time.Duration, error) { return b.timeStart(ctx, dir, b.controller.URL, startPods) }},
		{&one.bare, func() (time.Duration, error) { return b.controller.sendAll(ctx, sent, parallel) }},
		{&coe, func() (time.Duration, error) { return b.controller.sendAll(ctx, ownPuts(), 1) }},
	} {
		if err := b.controller.fresh(ctx); err != nil {
			return one, coe, err
		}
		if *turn.took, err = turn.do(); err != nil {
			return one, coe, err
		}
	}
	return one, coe, nil
}

// ownPuts are the requests that put the pods to OpenDaylight's own COE northbound.
func ownPuts() []written {
	all := make([]written, startPods)
	for i := range all {
		all[i] = written{method: http.MethodPut, path: config + startCluster.PodPath(i), body: startCluster.PodsBody(i, i+1)}
	}
	return all
}

// sendAll sends requests in their order, some at a time, and tells how long that took.
func (c *controller) sendAll(ctx context.Context, all []written, some int) (time.Duration, error) {
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
