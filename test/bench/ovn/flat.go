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
	// flatFactor bounds the last look against the first one, which comes after the memory of the start was returned.
	flatFactor = 1.25
)

// look is what a bridge needs at one moment.
type look struct {
	memory, goroutines float64
	database, data     float64 // bytes of the compacted northbound database, and of the bridge's folder
}

// measureFlat creates and deletes 100,000 pods beside 2,000 others, and looks after each 20,000. Each pod is a new one.
func measureFlat(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	n, err := b.newNorthbound(ctx, flatBase, flatBase/podsOfEveryNode)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if _, err := n.start(ctx); err != nil {
		return nil, err
	}
	if err := n.settle(ctx); err != nil {
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
	first, last := looks[0], looks[len(looks)-1]
	for _, one := range []struct {
		what        string
		first, last float64
		text        string
	}{
		{"resident memory", first.memory, last.memory, fmt.Sprintf("%.0f, %.0f MiB", first.memory/process.Megabyte, last.memory/process.Megabyte)},
		{"goroutines", first.goroutines, last.goroutines, fmt.Sprintf("%.0f, %.0f", first.goroutines, last.goroutines)},
		{"northbound database, compacted", first.database, last.database, fmt.Sprintf("%.2f, %.2f MiB", first.database/process.Megabyte, last.database/process.Megabyte)},
		{"datastore", first.data, last.data, fmt.Sprintf("%.0f, %.0f MiB", first.data/process.Megabyte, last.data/process.Megabyte)},
	} {
		all = append(all, figures.Figure{
			Name:     "100,000 pods come and go: " + one.what + ", against after 20,000",
			Measured: fmt.Sprintf("%.2f (%s)", one.last/one.first, one.text),
			Bound:    fmt.Sprintf("at most %g", flatFactor), Within: one.last <= flatFactor*one.first,
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
	return fmt.Sprintf("%.0f MiB resident, %.0f goroutines, northbound database %.2f MiB, datastore %.0f MiB", l.memory/process.Megabyte, l.goroutines,
		l.database/process.Megabyte, l.data/process.Megabyte)
}

func (n *northbound) look(ctx context.Context) (l look, err error) {
	if _, err := n.nb.Control("ovsdb-server/compact"); err != nil {
		return l, err
	}
	if l.memory, _, err = n.bridge.Settled(ctx); err != nil {
		return l, err
	}
	_, metrics, err := n.bridge.Client.Do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, "go_goroutines "); found {
			if l.goroutines, err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
				return l, err
			}
		}
	}
	if l.database, err = process.SizeOf(n.nb.Database()); err != nil {
		return l, err
	}
	l.data, err = process.SizeOf(n.dir)
	return l, err
}
