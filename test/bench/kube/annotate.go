package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

const (
	annotatePairs = 5
	annotateRate  = 0.75
)

// measureAnnotations has 20 workers create 5,000 pods, alternating between a bridge that
// annotates them without limit and a controller that does nothing else. The bridge also
// does all its other work for a pod. The measured time is from the first creation until
// the watch has seen the last annotation.
func measureAnnotations(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var rates []float64
	var ours, bare time.Duration
	for n := range annotatePairs {
		tookOurs, tookBare, err := w.annotatePair(ctx, n)
		if err != nil {
			return nil, err
		}
		b.Say("5,000 pods created and annotated, pair %d of %d: bridge %s, null controller %s", n+1, annotatePairs, figures.Short(tookOurs), figures.Short(tookBare))
		rates = append(rates, float64(tookBare)/float64(tookOurs))
		ours, bare = ours+tookOurs, bare+tookBare
	}
	rate, total := median(rates), float64(annotatePairs*pods)
	return []figures.Figure{figures.Rate("the same: to all annotations, rate limit off",
		fmt.Sprintf("%.2f of a null controller's rate, median (%.0f/s, null %.0f/s)", rate, total/ours.Seconds(), total/bare.Seconds()),
		rate, annotateRate)}, nil
}

// annotatePair measures annotations by the bridge and by the null controller. They alternate in
// being first, because the API server slows down with time.
func (w *world) annotatePair(ctx context.Context, n int) (ours, bare time.Duration, err error) {
	turns := []func() error{
		func() (err error) {
			bare, err = w.annotate(ctx, fmt.Sprintf("null%d-", n), func() (annotator, error) { return w.startNull(ctx) })
			return err
		},
		func() (err error) {
			ours, err = w.annotate(ctx, fmt.Sprintf("ours%d-", n), func() (annotator, error) { return w.startIdle(ctx) })
			return err
		},
	}
	if n%2 == 1 {
		slices.Reverse(turns)
	}
	for _, turn := range turns {
		if err := turn(); err != nil {
			return 0, 0, err
		}
	}
	return ours, bare, nil
}

// startIdle starts a bridge that has no work yet.
func (w *world) startIdle(ctx context.Context) (*process.Bridge, error) {
	br, err := w.start(ctx, process.Unlimited)
	if err != nil {
		return nil, err
	}
	if _, err := br.AwaitSync(ctx, 0); err != nil {
		return nil, errors.Join(err, br.Stop())
	}
	return br, nil
}

// annotate creates pods while the annotator annotates them, and then deletes them.
func (w *world) annotate(ctx context.Context, prefix string, start func() (annotator, error)) (took time.Duration, err error) {
	watch, err := w.watchPods(ctx)
	if err != nil {
		return 0, err
	}
	defer watch.stop()
	a, err := start()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	_, err = w.plane.MakePods(ctx, load(pods, prefix))
	if err != nil {
		return 0, errors.Join(err, a.Stop())
	}
	annotated, err := watch.annotated.await(ctx, prefix, pods)
	if err := errors.Join(err, a.Stop()); err != nil {
		return 0, err
	}
	_, err = w.plane.DeletePods(ctx, load(pods, prefix))
	return last(annotated).Sub(begun), err
}
