package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// rowsTimeout bounds the wait for rows.
const rowsTimeout = 5 * time.Minute

// northbound is a cluster with a northbound database and without northd, so that the processors are the bridge's.
type northbound struct {
	*cluster
	nb    *ovsdb.Process
	watch *nbwatch.Watch

	mu sync.Mutex
	at map[string]time.Time // of new rows, by port
}

// newNorthbound starts a cluster of some pods without a bridge.
func (b *bench) newNorthbound(pods, nodes int) (n *northbound, err error) {
	load := kube.PodLoad{Count: pods, Namespaces: 20, Nodes: nodes}
	n = &northbound{cluster: &cluster{spec: spec{layout: ovn.LayoutNode, load: load}, first: pods, bench: b}, at: map[string]time.Time{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if err := n.serve(); err != nil {
		return nil, err
	}
	n.nb, err = ovsdb.Run()
	return n, err
}

func (n *northbound) note(port string) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[port] = now
}

func (n *northbound) close() error {
	if n.watch != nil {
		n.watch.Stop()
	}
	err := n.cluster.close()
	if n.nb != nil {
		err = errors.Join(err, n.nb.Close())
	}
	return err
}

// start starts the bridge, and waits until all rows are written.
func (n *northbound) start(ctx context.Context) (err error) {
	if n.bridge, err = n.startAt(ctx, n.nb.Endpoint()); err != nil {
		return err
	}
	_, err = n.bridge.AwaitSync(ctx, n.load.Count)
	return err
}

// timeStart starts the bridge. It returns the time from the end of its list of pods until the server has written all rows.
func (n *northbound) timeStart(ctx context.Context) (time.Duration, error) {
	empty, err := n.nb.Journal()
	if err != nil {
		return 0, err
	}
	if err := n.start(ctx); err != nil {
		return 0, err
	}
	written, err := empty.Last()
	if err != nil {
		return 0, err
	}
	listed, err := n.bridge.Listed("pods")
	return written.Sub(listed), err
}

func (n *northbound) startAndSettle(ctx context.Context) error {
	if err := n.start(ctx); err != nil {
		return err
	}
	return n.settle(ctx)
}

// settle waits until the bridge has done all its work, and watches pods. From then on the times of new rows are noted.
func (n *northbound) settle(ctx context.Context) (err error) {
	if n.watch == nil {
		if n.watch, err = nbwatch.Start(ctx, n.nb.Endpoint(), n.note); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	return errors.Join(n.api.AwaitAnnotations(ctx, n.load.Count), n.bridge.AwaitTold(ctx, n.load.Count), n.pods.AwaitWatch(ctx))
}

// since waits for the rows of ports, and returns the sorted durations from their known times.
func (n *northbound) since(ctx context.Context, known map[string]time.Time) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		took = took[:0]
		n.mu.Lock()
		for port, begun := range known {
			if at, found := n.at[port]; found {
				took = append(took, at.Sub(begun))
			}
		}
		n.mu.Unlock()
		if len(took) == len(known) {
			slices.Sort(took)
			return took, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d rows are written: %w", len(took), len(known), ctx.Err())
		case <-tick.C:
		}
	}
}

// comeAndGo lets pods come at a pace. Each goes when another number of pods have come after it. come makes the pod with a number, and
// go deletes it. It returns the times at which the pods came.
func (n *northbound) comeAndGo(ctx context.Context, from, pods, life int, every time.Duration, come, leave func(int) error) (map[string]time.Time, error) {
	known := map[string]time.Time{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := from; i < from+pods+life; i++ {
		if i < from+pods {
			known[n.portOf(i)] = time.Now()
			if err := come(i); err != nil {
				return nil, err
			}
		}
		if i >= from+life {
			if err := leave(i - life); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	return known, nil
}

// bridgeWrites lets pods come to the bridge and go.
func (n *northbound) bridgeWrites(ctx context.Context, from, pods, life int, every time.Duration) ([]time.Duration, error) {
	known, err := n.comeAndGo(ctx, from, pods, life, every, func(i int) error { return n.pods.Resize(i + 1) }, n.pods.Delete)
	if err != nil {
		return nil, err
	}
	return n.since(ctx, known)
}

// restartFigures stops the bridge, and starts it again with nothing to do.
func (n *northbound) restartFigures(ctx context.Context, bound time.Duration, megabytes int) ([]figures.Figure, error) {
	if err := n.stopBridge(); err != nil {
		return nil, err
	}
	r, err := process.Restart(ctx, n.nb, n.load.Count, func() (*process.Bridge, error) { return n.startAt(ctx, n.nb.Endpoint()) })
	if err != nil {
		return nil, err
	}
	return r.Figures(fmt.Sprintf("%d pods, layout node", n.load.Count), bound, megabytes), nil
}
