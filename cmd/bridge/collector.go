package bridge

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A small heap may double before the garbage collector runs, which is cheap and
// is what Go does unless told otherwise. A large one is collected when it has
// grown by a quarter, for a cluster's worth of garbage is memory that others
// on the machine could use.
const (
	smallPercent = 100
	largePercent = 25
	largeHeap    = 200 << 20 // bytes that live
	paceEvery    = time.Second
)

// paceCollector keeps the collector's pace to the heap's size until ctx is done.
// Where GOGC is set, that is what counts.
func paceCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	defer debug.SetGCPercent(smallPercent)
	ticker := time.NewTicker(paceEvery)
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for percent := smallPercent; ; {
		metrics.Read(live)
		if want := collectorPercent(live[0].Value.Uint64()); want != percent {
			debug.SetGCPercent(want)
			percent = want
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func collectorPercent(live uint64) int {
	if live > largeHeap {
		return largePercent
	}
	return smallPercent
}
