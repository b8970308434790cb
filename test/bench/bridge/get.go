package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	getRounds = 20
	getChunk  = 400
	getFactor = 3
	listPods  = 1000
	listChunk = 10
)

// measureGet reads one pod repeatedly, alternating with a handler that writes the same bytes.
// Then it reads all 1,000 pods, alternating with a handler that encodes them from structs.
func measureGet(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.Folder("get")
	if err != nil {
		return nil, err
	}
	ours, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	if err := ours.fill(ctx, oneInNamespaces, listPods, listPods); err != nil {
		return nil, err
	}
	for _, one := range []struct {
		name, path string
		chunk      int
		bare       func(answer string) (http.Handler, error)
	}{
		{"GET of one pod", oneInNamespaces.PodPath(listPods / 2), getChunk, sameBytes},
		{"GET of a list of 1,000 pods", synth.PodsPath, listChunk, sameStructs},
	} {
		f, err := b.compareGets(ctx, ours, one.path, one.chunk, one.bare)
		if err != nil {
			return nil, err
		}
		f.Name = one.name
		all = append(all, f)
	}
	return all, nil
}

// sameBytes returns a handler that writes the answer and does nothing else.
func sameBytes(answer string) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }), nil
}

// sameStructs decodes an answer, and returns a handler that encodes it for each request.
func sameStructs(answer string) (http.Handler, error) {
	var list struct {
		Pods barePods `json:"coe"`
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		return nil, fmt.Errorf("read the list of pods: %w", err)
	}
	if len(list.Pods.Pods) != listPods {
		return nil, fmt.Errorf("the list has %d pods, not %d: %.200s", len(list.Pods.Pods), listPods, answer)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(list) }), nil
}

func (b *bench) compareGets(ctx context.Context, ours *running, path string, chunk int, bare func(string) (http.Handler, error)) (f figures.Figure, err error) {
	answer, err := ours.do(ctx, http.MethodGet, path, "")
	if err != nil {
		return f, err
	}
	handler, err := bare(answer)
	if err != nil {
		return f, err
	}
	server, err := serveBare(handler)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	b.Say("reading %s, alternating with a bare handler", path)
	get := func(at *client) func() (time.Duration, error) {
		return func() (time.Duration, error) {
			return load(1, 0, chunk, func(int) error {
				_, err := at.do(ctx, http.MethodGet, path, "")
				return err
			})
		}
	}
	sum, err := alternate(getRounds, get(server.client), get(ours.client))
	requests := time.Duration(getRounds * chunk)
	return figures.Figure{
		Measured: fmt.Sprintf("%.2f times a bare handler's time (%s, bare %s)",
			1/sum.rate(), figures.Short(sum.ours/requests), figures.Short(sum.bare/requests)),
		Bound: fmt.Sprintf("at most %d", getFactor), Within: 1/sum.rate() <= getFactor,
	}, err
}

// alternate measures two sides alternately. The first round is not counted.
func alternate(rounds int, bare, ours func() (time.Duration, error)) (sum comparison, err error) {
	for n := range rounds + 1 {
		var one comparison
		if one.bare, err = bare(); err != nil {
			return sum, err
		}
		if one.ours, err = ours(); err != nil {
			return sum, err
		}
		if n > 0 {
			sum.ours += one.ours
			sum.bare += one.bare
		}
	}
	return sum, nil
}
