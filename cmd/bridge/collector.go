package bridge

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The heap may grow by headroom before the garbage collector runs, or by a quarter
// of what lives in it where that is more: a small heap is collected seldom, which
// is what requests cost most, and a large one takes no more from others on the
// machine than it must.
const (
	headroom   = 64 << 20 // bytes
	minPercent = 25
	maxPercent = 400
	goPercent  = 100 // what Go does unless told otherwise
	paceEvery  = time.Second
)

// paceCollector keeps the collector's pace to the heap's size until ctx is done.
// Where GOGC is set, that is what counts.
func paceCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	defer debug.SetGCPercent(goPercent)
	ticker := time.NewTicker(paceEvery)
	defer ticker.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for percent := goPercent; ; {
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

// syncPoll is how often it is looked whether a new leader is in sync.
const syncPoll = 100 * time.Millisecond

// freeStart gives back to the system what it took to become the leader, once that is
// in sync: to read everything takes some times what is kept of it.
func (p *part) freeStart(ctx context.Context) error {
	ticker := time.NewTicker(syncPoll)
	defer ticker.Stop()
	for !p.loop.Status().InSync {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	debug.FreeOSMemory()
	<-ctx.Done()
	return nil
}

func collectorPercent(live uint64) int {
	return int(min(maxPercent, max(minPercent, headroom*100/max(live, 1))))
}
