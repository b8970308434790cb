package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

const (
	churnRounds = 6
	churnPods   = 100 // in a round
	churnEvery  = 50 * time.Millisecond
	churnLife   = 20 // pods of the churn exist at the same time
	churnP50    = 3 * time.Millisecond
	churnP99    = 10 * time.Millisecond
	churnFactor = 1.5
)

// measureChurn has 5,000 pods. It also creates and deletes 20 pods a second, alternating between
// the bridge and the null controller. The measured time is from a
// pod's watch event until its row and the event on its node's stream are seen. The time
// until its annotation is measured separately, for the bridge and for the null controller.
func measureChurn(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	var rows, told, annotated, bare []time.Duration
	for n := range churnRounds {
		prefix := fmt.Sprintf("null%d-", n)
		took, err := w.churnNull(ctx, prefix)
		if err != nil {
			return nil, err
		}
		bare = append(bare, took...)
		prefix = fmt.Sprintf("seen%d-", n)
		s, err := w.churnSeen(ctx, prefix)
		if err != nil {
			return nil, err
		}
		rows = append(rows, between(s.came, s.rows)...)
		told = append(told, between(s.came, s.told)...)
		prefix = fmt.Sprintf("ours%d-", n)
		if took, err = w.churnOurs(ctx, prefix); err != nil {
			return nil, err
		}
		annotated = append(annotated, took...)
		b.Say("churn of 20 pods/s, round %d of %d is done", n+1, churnRounds)
	}
	for _, d := range [][]time.Duration{rows, told, annotated, bare} {
		slices.Sort(d)
	}
	const name = "churn of 20 pods/s on 5,000: watch event to "
	for _, one := range []struct {
		to   string
		took []time.Duration
	}{{"row in NB", rows}, {"event on the node's stream", told}} {
		all = append(all, figures.AtMost(name+one.to+", p50", figures.Percentile(one.took, 50), churnP50),
			figures.AtMost(name+one.to+", p99", figures.Percentile(one.took, 99), churnP99))
	}
	return append(all, asNull(name, annotated, bare, 50), asNull(name, annotated, bare, 99)), nil
}

func asNull(name string, ours, bare []time.Duration, p int) figures.Figure {
	o, n := figures.Percentile(ours, p), figures.Percentile(bare, p)
	return figures.Figure{
		Name:     fmt.Sprintf("%sannotation, p%d", name, p),
		Measured: fmt.Sprintf("%.2f of the null controller's (%s, null %s)", float64(o)/float64(n), figures.Short(o), figures.Short(n)),
		Bound:    fmt.Sprintf("at most %g", churnFactor), Within: float64(o) <= churnFactor*float64(n),
	}
}

// settle creates the 5,000 pods, and waits until a bridge has done all its work for them.
func (w *world) settle(ctx context.Context) (err error) {
	w.Say("making 5,000 pods, with their networks and annotations")
	watch, err := w.watchPods(ctx)
	if err != nil {
		return err
	}
	defer watch.stop()
	br, err := w.start(ctx, process.Unlimited)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if _, err := w.plane.MakePods(ctx, load(pods, "base-")); err != nil {
		return err
	}
	if _, err := watch.annotated.await(ctx, "base-", pods); err != nil {
		return err
	}
	if _, err = br.AwaitSync(ctx, pods); err != nil {
		return err
	}
	return br.AwaitTold(ctx, pods)
}

func (w *world) churnNull(ctx context.Context, prefix string) (took []time.Duration, err error) {
	n, err := w.startNull(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	return w.churnAnnotated(ctx, prefix)
}

func (w *world) churnOurs(ctx context.Context, prefix string) (took []time.Duration, err error) {
	br, err := w.start(ctx, process.Unlimited)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if _, err := br.AwaitSync(ctx, pods); err != nil {
		return nil, err
	}
	return w.churnAnnotated(ctx, prefix)
}

// churnAnnotated watches the pods of a churn until they are annotated, and returns the duration for
// each.
func (w *world) churnAnnotated(ctx context.Context, prefix string) ([]time.Duration, error) {
	watch, err := w.watchPods(ctx)
	if err != nil {
		return nil, err
	}
	defer watch.stop()
	if err := w.churn(ctx, prefix); err != nil {
		return nil, err
	}
	annotated, err := watch.annotated.await(ctx, prefix, churnPods)
	if err != nil {
		return nil, err
	}
	return between(watch.came.of(prefix), annotated), nil
}

// churnSeen observes the work of a bridge for the pods of a churn.
func (w *world) churnSeen(ctx context.Context, prefix string) (s seen, err error) {
	br, err := w.start(ctx, process.Unlimited)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if _, err := br.AwaitSync(ctx, pods); err != nil {
		return s, err
	}
	o, err := w.observe(ctx, br)
	if err != nil {
		return s, err
	}
	defer o.stop()
	if err := w.churn(ctx, prefix); err != nil {
		return s, err
	}
	return o.await(ctx, prefix, churnPods)
}

// churn creates pods at a steady pace. It deletes each pod a second later, in the middle between
// two creations. It returns when all pods are deleted.
func (w *world) churn(ctx context.Context, prefix string) error {
	l := load(churnPods, prefix)
	tick := time.NewTicker(churnEvery / 2)
	defer tick.Stop()
	for half := range 2 * (churnPods + churnLife) {
		var err error
		switch i := half / 2; {
		case half%2 == 0 && i < churnPods:
			err = w.createPod(ctx, l.Pod(i))
		case half%2 == 1 && i >= churnLife:
			err = w.deletePod(ctx, l.Pod(i-churnLife))
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func (w *world) createPod(ctx context.Context, pod *corev1.Pod) error {
	if _, err := w.plane.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (w *world) deletePod(ctx context.Context, pod *corev1.Pod) error {
	if err := w.plane.Client().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
