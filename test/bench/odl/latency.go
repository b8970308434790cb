package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	latencyPods  = 200 // existing pods
	latencyPuts  = 150
	latencyEvery = 200 * time.Millisecond
	latencyRatio = 1.5
	// podWrites is the number of requests for the entries of one pod, if its elan-instance and
	// its vpn-instance exist.
	podWrites = 3
)

var latencyCluster = synth.Cluster{Nodes: 4, Namespaces: 5}

// measureLatency puts pods one by one, five a second. The measured time is from the answer to the
// PUT until the controller has answered the last request about the pod. After each pod a bare
// client sends the same requests again with an unused name, one after the other. Their durations
// are added.
func measureLatency(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.Folder("latency")
	if err != nil {
		return nil, err
	}
	if err := b.controller.fresh(ctx); err != nil {
		return nil, err
	}
	w, err := startWire(b.controller.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	r, err := b.start(ctx, dir, w.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.fill(ctx, latencyCluster, latencyPods); err != nil {
		return nil, err
	}
	if err := b.controller.settle(ctx); err != nil {
		return nil, err
	}
	b.Say("putting %d pods, five a second", latencyPuts)
	ours, bare, err := b.putPaced(ctx, r, w)
	if err != nil {
		return nil, err
	}
	name := "pod PUT answered, to the last request answered by OpenDaylight, 5 pods/s: "
	return []figures.Figure{
		comparison{figures.Percentile(ours, 50), figures.Percentile(bare, 50)}.atMost(name+"p50", latencyRatio),
		comparison{figures.Percentile(ours, 95), figures.Percentile(bare, 95)}.atMost(name+"p95", latencyRatio),
	}, nil
}

// putPaced returns the duration of each pod, and the duration of its bare requests, both sorted.
func (b *bench) putPaced(ctx context.Context, r *running, w *served) (ours, bare []time.Duration, err error) {
	tick := time.NewTicker(latencyEvery)
	defer tick.Stop()
	for i := latencyPods; i < latencyPods+latencyPuts; i++ {
		took, sent, err := putOne(ctx, r, w, i)
		if err != nil {
			return nil, nil, err
		}
		sum, err := b.sendRenamed(ctx, w, sent, i)
		if err != nil {
			return nil, nil, err
		}
		ours, bare = append(ours, took), append(bare, sum)
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-tick.C:
		}
	}
	slices.Sort(ours)
	slices.Sort(bare)
	return ours, bare, nil
}

func podName(i int) string {
	return netvirt.InterfaceName(latencyCluster.Namespace(i), synth.PodName(i), "", true)
}

// putOne puts a pod to the bridge. It returns the requests about the pod, and the time from the
// answer to the PUT until the controller has answered the last one.
func putOne(ctx context.Context, r *running, w *served, i int) (time.Duration, []wire.Request, error) {
	before := len(w.Seen())
	if err := r.put(ctx, http.MethodPut, latencyCluster.PodPath(i), latencyCluster.PodsBody(i, i+1)); err != nil {
		return 0, nil, err
	}
	answered := time.Now()
	sent, err := w.await(ctx, before, podWrites, fmt.Sprintf("%q", podName(i)))
	if err != nil {
		return 0, nil, err
	}
	last := slices.MaxFunc(sent, func(a, b wire.Request) int { return a.Answered.Compare(b.Answered) })
	return last.Answered.Sub(answered), sent, nil
}

// sendRenamed sends the requests of a pod for an interface without a pod, with its own port, and
// returns the total duration.
func (b *bench) sendRenamed(ctx context.Context, w *served, sent []wire.Request, i int) (sum time.Duration, err error) {
	name := podName(i)
	port := netvirt.PortName(name, synth.PodUID(i))
	other := strings.NewReplacer(name, fmt.Sprintf("bare-pod-%d", i), port, port[:len(port)-1]+"x")
	for _, one := range sent {
		one.Body = other.Replace(one.Body)
		begun := time.Now()
		if _, err := b.controller.send(ctx, w.URL, one); err != nil {
			return 0, err
		}
		sum += time.Since(begun)
	}
	return sum, nil
}
