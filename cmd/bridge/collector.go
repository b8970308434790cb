package bridge

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/coe-bridge/coe-bridge/cmd/footprint"
)

// The heap may grow by headroom before the garbage collector runs, or by a quarter
// of what lives in it where that is more: a small heap is collected seldom, which
// is what requests cost most, and a large one takes no more from others on the
// machine than it must.
const (
	headroom   = 128 << 20 // bytes
	minPercent = 25
	// burstPercent is the least while a burst of work lasts: what it takes is given back.
	burstPercent = 75
	maxPercent   = 400
	goPercent    = 100 // what Go does unless told otherwise
	paceEvery    = time.Second
)

// A burst of work is one for which at least burstSize was allocated: half of the
// headroom, so that its end makes the collector run at most twice as often. It is over
// when for restFor times paceEvery in a row no more than restRate was.
const (
	burstSize = headroom / 2
	restRate  = 8 << 20
	restFor   = 2
)

// paceCollector keeps the collector's pace to the heap's size until ctx is done, and
// gives back to the system what a burst of work took, a start being the first: to read
// everything takes some times what is kept of it. Where GOGC is set, that is what counts.
func (b *Bridge) paceCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	defer debug.SetGCPercent(goPercent)
	ticker := time.NewTicker(paceEvery)
	defer ticker.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	watched := burst{}
	for percent := goPercent; ; {
		metrics.Read(heap)
		over := watched.over(heap[1].Value.Uint64())
		if want := collectorPercent(heap[0].Value.Uint64(), watched.lasts()); want != percent {
			debug.SetGCPercent(want)
			percent = want
		}
		if over {
			b.giveBack()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// giveBack gives back what the last burst of work needed: its data, and the parts of
// the program that it ran.
func (b *Bridge) giveBack() {
	debug.FreeOSMemory()
	if err := footprint.ReleaseProgram(); err != nil {
		b.log.Warn("the program's pages stay in memory", "err", err)
	}
}

// burst watches for the end of bursts of work.
type burst struct {
	allocated uint64 // by the process in all its time
	since     uint64 // of these, since the last burst was over
	rested    int    // how many times in a row little was allocated
}

// over tells once that a burst is over. It is asked every paceEvery, with what was
// allocated in all.
func (b *burst) over(allocated uint64) bool {
	step := allocated - b.allocated
	b.allocated = allocated
	b.since += step
	if b.rested++; step > restRate {
		b.rested = 0
	}
	if b.rested < restFor || b.since < burstSize {
		return false
	}
	b.since = 0
	return true
}

// lasts tells whether there was a burst when it was asked last.
func (b *burst) lasts() bool { return b.rested == 0 && b.since >= burstSize }

func collectorPercent(live uint64, burst bool) int {
	least := uint64(minPercent)
	if burst {
		least = burstPercent
	}
	return int(min(maxPercent, max(least, headroom*100/max(live, 1))))
}
