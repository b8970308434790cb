package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	postRounds = 5
	postPods   = 1000
	postFactor = 5
)

// measurePost sends 1,000 new pods in one body, alternating with 1,000 pods that are put one
// by one. Between the two it waits until all pods are mapped.
func measurePost(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.Folder("post")
	if err != nil {
		return nil, err
	}
	r, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.fill(ctx, oneInNamespaces, postPods, postPods); err != nil {
		return nil, err
	}
	b.Say("posting 1,000 pods in one body, alternating with putting 1,000 pods")
	next := postPods
	turn := func(send func(from, to int) (time.Duration, error)) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			from := next
			next += postPods
			took, err := send(from, next)
			if err != nil {
				return 0, err
			}
			return took, r.awaitSync(ctx, next)
		}
	}
	put := func(from, to int) (time.Duration, error) {
		return load(1, from, to, func(i int) error {
			_, err := r.do(ctx, http.MethodPut, oneInNamespaces.PodPath(i), oneInNamespaces.PodsBody(i, i+1))
			return err
		})
	}
	post := func(from, to int) (time.Duration, error) {
		begun := time.Now()
		_, err := r.do(ctx, http.MethodPost, synth.PodsPath, oneInNamespaces.PodsBody(from, to))
		return time.Since(begun), err
	}
	sum, err := alternate(postRounds, turn(put), turn(post))
	const pods = postRounds * postPods
	return []figures.Figure{{
		Name: "POST of 1,000 pods in one body",
		Measured: fmt.Sprintf("%.1f times as fast a pod as single PUTs (%s, PUT %s)",
			sum.rate(), figures.Short(sum.ours/pods), figures.Short(sum.bare/pods)),
		Bound: fmt.Sprintf("at least %d", postFactor), Within: sum.rate() >= postFactor,
	}}, err
}
