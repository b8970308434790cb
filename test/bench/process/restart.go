package process

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

// Restarted has the results of a restart.
type Restarted struct {
	Took   time.Duration  // from the start of the process until it is in sync
	Memory float64        // resident memory afterwards, in bytes
	Peak   float64        // largest resident memory
	Wrote  []ovsdb.Record // the transactions in the northbound database
}

// Restart starts a bridge that has no work.
func Restart(ctx context.Context, nb *ovsdb.Process, pods int, start func() (*Bridge, error)) (r Restarted, err error) {
	before, err := nb.Journal()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	br, err := start()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	synced, err := br.AwaitSync(ctx, pods)
	if err != nil {
		return r, err
	}
	r.Took = synced.Sub(begun)
	if r.Memory, r.Peak, err = br.Settled(ctx); err != nil {
		return r, err
	}
	r.Wrote, err = before.Since()
	return r, err
}

// Megabyte is the unit of memory.
const Megabyte = 1 << 20

// epochTables are the tables of the only transaction of a new leader: it writes its epoch
// (docs/architecture.md, rule 9).
const epochTables = "NB_Global"

// Figures returns the figures of a restart, of a cluster of a size. The memory has a bound in MiB.
func (r Restarted) Figures(of string, bound time.Duration, megabytes int) []figures.Figure {
	return []figures.Figure{
		figures.AtMost("restart with "+of+": process start to in sync", r.Took, bound),
		{
			Name:     "restart with " + of + ": memory when in sync",
			Measured: fmt.Sprintf("%.0f MiB resident (%.0f MiB at most before)", r.Memory/Megabyte, r.Peak/Megabyte),
			Bound:    fmt.Sprintf("at most %d MiB", megabytes), Within: r.Memory <= float64(megabytes)*Megabyte,
		},
		r.Transactions(of),
	}
}

// Transactions returns the figure of the transactions of a restart.
func (r Restarted) Transactions(of string) figures.Figure {
	var others []string
	for _, record := range r.Wrote {
		if record.Tables() != epochTables {
			others = append(others, record.Tables())
		}
	}
	wrote := fmt.Sprintf("%d, beside %d of the new leader's epoch", len(others), len(r.Wrote)-len(others))
	if len(others) > 0 {
		wrote += ": " + strings.Join(slices.Compact(slices.Sorted(slices.Values(others))), ", ")
	}
	return figures.Figure{
		Name:     "restart with " + of + ": transactions in NB",
		Measured: wrote, Bound: "none, but the epoch", Within: len(others) == 0 && len(r.Wrote) <= 1,
	}
}
