package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	latencyPods  = 800 // in 20 namespaces that grow from 40 pods each to 60
	latencyPuts  = 400
	latencyEvery = 50 * time.Millisecond
	latencyP50   = 3 * time.Millisecond
	latencyP99   = 10 * time.Millisecond
)

// measureLatency puts pods one by one, 20 a second. Its own client watches the northbound database
// for their rows. The measured time is from the answer to the PUT until the client sees the row.
func measureLatency(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.Folder("latency")
	if err != nil {
		return nil, err
	}
	server, err := ovsdb.Run()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	r, err := b.start(ctx, dir, ovnBackend(server.Endpoint()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	cluster := synth.Cluster{Nodes: 10, Namespaces: 20}
	if err := r.fill(ctx, cluster, latencyPods, latencyPods); err != nil {
		return nil, err
	}
	w, err := watch(ctx, server.Endpoint())
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	b.Say("putting %d pods, 20 a second, into namespaces of 50 pods", latencyPuts)
	answered, err := r.putPaced(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := r.awaitSync(ctx, latencyPods+latencyPuts); err != nil {
		return nil, err
	}
	took, err := w.since(ctx, answered)
	if err != nil {
		return nil, err
	}
	name := "pod PUT answered, to row in NB, 20 pods/s: "
	return []figures.Figure{
		figures.AtMost(name+"p50", figures.Percentile(took, 50), latencyP50),
		figures.AtMost(name+"p99", figures.Percentile(took, 99), latencyP99),
	}, nil
}

// putPaced puts the pods, and returns the time of each answer, by the name of the pod's port.
func (r *running) putPaced(ctx context.Context, cluster synth.Cluster) (map[string]time.Time, error) {
	answered := map[string]time.Time{}
	tick := time.NewTicker(latencyEvery)
	defer tick.Stop()
	for i := latencyPods; i < latencyPods+latencyPuts; i++ {
		if _, err := r.do(ctx, http.MethodPut, cluster.PodPath(i), cluster.PodsBody(i, i+1)); err != nil {
			return nil, err
		}
		answered[netvirt.InterfaceName(cluster.Namespace(i), synth.PodName(i), "", true)] = time.Now()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	return answered, nil
}

// watcher notes the time at which each switch port appears in a northbound database.
type watcher struct {
	*nbwatch.Watch

	mu   sync.Mutex
	seen map[string]time.Time // by name
}

func watch(ctx context.Context, endpoint string) (w *watcher, err error) {
	w = &watcher{seen: map[string]time.Time{}}
	w.Watch, err = nbwatch.Start(ctx, endpoint, w.came)
	return w, err
}

func (w *watcher) came(name string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[name] = now
}

// since returns the time from each moment until its port was seen, sorted. It waits for ports that
// were not seen yet.
func (w *watcher) since(ctx context.Context, moments map[string]time.Time) ([]time.Duration, error) {
	tick := time.NewTicker(syncPoll)
	defer tick.Stop()
	for {
		if took := w.compare(moments); len(took) == len(moments) {
			slices.Sort(took)
			return took, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the rows of pods: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (w *watcher) compare(moments map[string]time.Time) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for name, at := range moments {
		if seen, found := w.seen[name]; found {
			took = append(took, seen.Sub(at))
		}
	}
	return took
}
