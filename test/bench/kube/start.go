package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/nbcopy"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	startRounds = 7
	startRate   = 0.8
)

// measureStart starts a bridge with an empty datastore in a cluster of 5,000 pods. The measured
// time is from the end of its list of pods until it is in sync. In this time the bridge chooses and
// records the address of each pod, maps and writes, and starts to annotate. A bare client then
// writes the same rows to another database.
func measureStart(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	b.Say("making 5,000 pods")
	if _, err := w.plane.MakePods(ctx, load(pods, "start-")); err != nil {
		return nil, err
	}
	var rates []float64
	var ours, bare time.Duration
	for n := range startRounds {
		tookOurs, tookBare, err := w.startOnce(ctx)
		if err != nil {
			return nil, err
		}
		b.Say("5,000 pods there at start, round %d of %d: bridge %s, bare client %s", n+1, startRounds, figures.Short(tookOurs), figures.Short(tookBare))
		rates = append(rates, float64(tookBare)/float64(tookOurs))
		ours, bare = ours+tookOurs, bare+tookBare
	}
	rate := median(rates)
	return []figures.Figure{figures.Rate("5,000 pods in the API at start, 10 nodes, 20 namespaces: listed to all NB rows",
		fmt.Sprintf("%.2f of the bare client's rate, median (%s, bare %s)", rate, figures.Short(ours/startRounds), figures.Short(bare/startRounds)),
		rate, startRate)}, nil
}

func (w *world) startOnce(ctx context.Context) (ours, bare time.Duration, err error) {
	if err := w.empty(); err != nil {
		return 0, 0, err
	}
	if ours, err = w.timeStart(ctx); err != nil {
		return 0, 0, err
	}
	target, err := ovsdb.Run()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	ports, bare, err := nbcopy.Copy(ctx, w.nb.Endpoint(), target.Endpoint())
	if err != nil {
		return 0, 0, err
	}
	if ports < pods {
		return 0, 0, fmt.Errorf("the database has %d ports, want one for each of %d pods", ports, pods)
	}
	return ours, bare, nil
}

func (w *world) timeStart(ctx context.Context) (took time.Duration, err error) {
	br, err := w.start(ctx, "50")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	synced, err := br.AwaitSync(ctx, pods)
	if err != nil {
		return 0, err
	}
	listed, err := br.Listed("pods")
	if err != nil {
		return 0, err
	}
	return synced.Sub(listed), nil
}

// median returns the middle one of an odd number of values.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
