package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

const (
	stormLag = 500 * time.Millisecond
	stormCPU = 700 * time.Millisecond // per 1,000 pods
)

// measureStorm has 20 workers create 5,000 pods. The bridge annotates them as fast as the API
// server allows. The measured times are from the last pod's watch event until the last row and
// until the last event of a stream. The processor time of the bridge is measured too.
func measureStorm(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	br, err := w.start(ctx, process.Unlimited)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if _, err := br.AwaitSync(ctx, 0); err != nil {
		return nil, err
	}
	o, err := w.observe(ctx, br)
	if err != nil {
		return nil, err
	}
	defer o.stop()
	before, err := br.ProcessorTime()
	if err != nil {
		return nil, err
	}
	b.Say("creating 5,000 pods from 20 workers")
	made, err := w.plane.MakePods(ctx, load(pods, "storm-"))
	if err != nil {
		return nil, err
	}
	b.Say("created: %s", made)
	seen, err := o.await(ctx, "storm-", pods)
	if err != nil {
		return nil, err
	}
	after, err := br.ProcessorTime()
	if err != nil {
		return nil, err
	}
	end := last(seen.came)
	b.Say("annotated %s after the last pod's watch event", figures.Short(last(seen.annotated).Sub(end)))
	const name = "5,000 pods created by 20 workers: last watch event to last "
	return []figures.Figure{
		figures.AtMost(name+"row in NB", max(0, last(seen.rows).Sub(end)), stormLag),
		figures.AtMost(name+"event on the nodes' streams", max(0, last(seen.told).Sub(end)), stormLag),
		figures.AtMost("processor time of the bridge for 1,000 of these, annotated", (after-before)*1000/pods, stormCPU),
	}, nil
}

// observer notes the times of the events of pods, with its own watches and one clock.
type observer struct {
	pods *podWatch
	rows *rowWatch
	told *streams
}

// seen has the times of the events of each pod.
type seen struct{ came, annotated, rows, told map[string]time.Time }

func (w *world) observe(ctx context.Context, br *process.Bridge) (o *observer, err error) {
	o = &observer{}
	if o.pods, err = w.watchPods(ctx); err != nil {
		return nil, err
	}
	if o.rows, err = watchRows(ctx, w.nb.Endpoint()); err != nil {
		o.pods.stop()
		return nil, err
	}
	if o.told, err = follow(ctx, br); err != nil {
		o.rows.Stop()
		o.pods.stop()
		return nil, err
	}
	return o, nil
}

func (o *observer) stop() {
	o.told.Stop()
	o.rows.Stop()
	o.pods.stop()
}

// await waits until all events of n pods whose names begin with prefix were seen.
func (o *observer) await(ctx context.Context, prefix string, n int) (s seen, err error) {
	for _, one := range []struct {
		to   *map[string]time.Time
		from *moments
	}{{&s.came, o.pods.came}, {&s.rows, o.rows.moments}, {&s.told, o.told.moments}, {&s.annotated, o.pods.annotated}} {
		if *one.to, err = one.from.await(ctx, prefix, n); err != nil {
			return s, fmt.Errorf("observe pods %s*: %w", prefix, err)
		}
	}
	return s, nil
}
