package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	megabyte = 1 << 20
	// epochTables are the tables of the only transaction of a new leader: it writes its epoch
	// (docs/architecture.md, rule 9).
	epochTables = "NB_Global"
)

// measureRestart stops a bridge that has finished its work for 5,000 pods, and starts it again.
func measureRestart(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	r, err := restart(ctx, w.nb, pods, func() (*bridge, error) { return w.start(ctx, unlimited) })
	if err != nil {
		return nil, err
	}
	return r.figures("5,000 pods", time.Second, 120), nil
}

// restarted has the results of a restart.
type restarted struct {
	took   time.Duration // from the start of the process until it is in sync
	memory float64       // resident memory afterwards, in bytes
	peak   float64       // largest resident memory
	wrote  []string      // the tables of each transaction
}

// restart starts a bridge that has no work.
func restart(ctx context.Context, nb *ovsdb.Process, pods int, start func() (*bridge, error)) (r restarted, err error) {
	before, err := journalOf(nb)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	br, err := start()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, br.stop()) }()
	synced, err := br.awaitSync(ctx, pods)
	if err != nil {
		return r, err
	}
	r.took = synced.Sub(begun)
	if r.memory, r.peak, err = br.Settled(ctx); err != nil {
		return r, err
	}
	r.wrote, err = before.since()
	return r, err
}

func (r restarted) figures(of string, bound time.Duration, megabytes int) []figures.Figure {
	others := slices.DeleteFunc(slices.Clone(r.wrote), func(tables string) bool { return tables == epochTables })
	wrote := fmt.Sprintf("%d, beside %d of the new leader's epoch", len(others), len(r.wrote)-len(others))
	if len(others) > 0 {
		wrote += ": " + strings.Join(slices.Compact(slices.Sorted(slices.Values(others))), ", ")
	}
	return []figures.Figure{
		figures.AtMost("restart with "+of+": process start to in sync", r.took, bound),
		{
			Name:     "restart with " + of + ": memory when in sync",
			Measured: fmt.Sprintf("%.0f MiB resident (%.0f MiB at most before)", r.memory/megabyte, r.peak/megabyte),
			Bound:    fmt.Sprintf("at most %d MiB", megabytes), Within: r.memory <= float64(megabytes)*megabyte,
		},
		{
			Name:     "restart with " + of + ": transactions in NB",
			Measured: wrote, Bound: "none, but the epoch", Within: len(others) == 0 && len(r.wrote) <= 1,
		},
	}
}
