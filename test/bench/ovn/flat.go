package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
)

const (
	flatPods   = 100_000
	flatBatch  = 1000
	flatReport = 20_000
	flatBase   = 2000
	// flatIdle is the time after which an idle bridge has returned its memory, and etcd has removed files of its log.
	flatIdle = 30 * time.Second
	// flatFactor bounds the largest value of the later looks against the first one.
	flatFactor = 1.25
)

// look is what an idle bridge needs, and the peak of its memory before.
type look struct {
	memory, peak, goroutines float64
	database, data           float64 // bytes of the compacted northbound database, and of the bridge's folder
}

// measureFlat creates and deletes 100,000 pods beside 2,000 others, and looks after each 20,000. Each pod is a new one.
func measureFlat(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	n, err := b.newNorthbound(flatBase, flatBase/podsOfEveryNode)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.startAndSettle(ctx); err != nil {
		return nil, err
	}
	var looks []look
	for i := flatBase; i < flatBase+flatPods; i += flatBatch {
		if err := n.cycle(ctx, i); err != nil {
			return nil, err
		}
		if done := i + flatBatch - flatBase; done%flatReport == 0 {
			l, err := n.look(ctx)
			if err != nil {
				return nil, err
			}
			b.Say("%d pods have come and gone: %s", done, l)
			looks = append(looks, l)
		}
	}
	for _, one := range []struct {
		what string
		of   func(look) float64
		unit string
	}{
		{"resident memory of the idle bridge", func(l look) float64 { return l.memory / process.Megabyte }, " MiB"},
		{"peak of the resident memory", func(l look) float64 { return l.peak / process.Megabyte }, " MiB"},
		{"goroutines", func(l look) float64 { return l.goroutines }, ""},
		{"northbound database, compacted", func(l look) float64 { return l.database / process.Megabyte }, " MiB"},
		{"datastore", func(l look) float64 { return l.data / process.Megabyte }, " MiB"},
	} {
		first, most := one.of(looks[0]), 0.0
		for _, later := range looks[1:] {
			most = max(most, one.of(later))
		}
		all = append(all, figures.Figure{
			Name:     "100,000 pods come and go: " + one.what + ", the largest against after 20,000",
			Measured: fmt.Sprintf("%.2f (%.1f, %.1f%s)", most/first, most, first, one.unit),
			Bound:    fmt.Sprintf("at most %g", flatFactor), Within: most <= flatFactor*first,
		})
	}
	return all, nil
}

// cycle lets a batch of pods come, and then go.
func (n *northbound) cycle(ctx context.Context, from int) error {
	if err := n.pods.Resize(from + flatBatch); err != nil {
		return err
	}
	known := map[string]time.Time{}
	for i := range flatBatch {
		known[n.portOf(from+i)] = time.Now()
	}
	if _, err := n.since(ctx, known); err != nil {
		return err
	}
	n.mu.Lock()
	clear(n.at)
	n.mu.Unlock()
	for i := range flatBatch {
		if err := n.pods.Delete(from + i); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	return n.bridge.AwaitTold(ctx, n.load.Count)
}

func (l look) String() string {
	return fmt.Sprintf("%.0f MiB resident, %.0f at the peak, %.0f goroutines, northbound database %.2f MiB, datastore %.0f MiB",
		l.memory/process.Megabyte, l.peak/process.Megabyte, l.goroutines, l.database/process.Megabyte, l.data/process.Megabyte)
}

// look waits until the bridge is idle: no address rests after its pod, so the number of pods in the last half minute does not count.
func (n *northbound) look(ctx context.Context) (l look, err error) {
	for resting := 1.0; resting > 0; {
		select {
		case <-ctx.Done():
			return l, ctx.Err()
		case <-time.After(time.Second):
		}
		if resting, err = n.sumOf(ctx, "coe_bridge_pool_addresses{", `state="resting"`); err != nil {
			return l, err
		}
	}
	select {
	case <-ctx.Done():
		return l, ctx.Err()
	case <-time.After(flatIdle):
	}
	if l.memory, l.peak, err = n.bridge.Settled(ctx); err != nil {
		return l, err
	}
	if l.goroutines, err = n.sumOf(ctx, "go_goroutines ", ""); err != nil {
		return l, err
	}
	if l.data, err = process.SizeOf(n.dir); err != nil {
		return l, err
	}
	if _, err := n.nb.Control("ovsdb-server/compact"); err != nil {
		return l, err
	}
	l.database, err = process.SizeOf(n.nb.Database())
	return l, err
}

// sumOf returns the sum of the bridge's metrics that begin with a name and contain a label.
func (n *northbound) sumOf(ctx context.Context, name, label string) (sum float64, err error) {
	_, metrics, err := n.bridge.Client.Do(ctx, http.MethodGet, "/metrics", nil)
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name) || !strings.Contains(line, label) {
			continue
		}
		one, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:len(line)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("read the metric %s: %w", line, err)
		}
		sum += one
	}
	return sum, err
}
