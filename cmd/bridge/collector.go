package bridge

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/coe-bridge/coe-bridge/cmd/footprint"
)

// The heap may grow by headroom before the garbage collector runs, or by a quarter of its
// live data if that is more. So a small heap, whose collection is most of the cost of
// requests, is collected rarely, and a large heap does not take more memory than it must.
const (
	headroom   = 128 << 20 // bytes
	minPercent = 25
	// burstPercent is the minimum during a burst of work, whose memory is returned after it.
	burstPercent = 75
	maxPercent   = 400
	goPercent    = 100 // the default of Go
	paceEvery    = time.Second
)

// A burst of work allocates at least burstSize. That is half of the headroom, so that ends of
// bursts at most double the runs of the collector. A burst is over when no more than
// restRate was allocated restFor times paceEvery in a row.
//
// A process is idle if no more than idleRate was allocated idleFor times in a row. Less than a burst, but at least idleSize, is
// returned then. An idle bridge allocates this in minutes, as long as Go itself waits for a collection.
const (
	burstSize = headroom / 2
	restRate  = 8 << 20
	restFor   = 2
	idleSize  = 16 << 20
	idleRate  = 256 << 10
	idleFor   = 10
)

// paceCollector adapts the pace of the collector to the size of the heap, until ctx is done.
// After a burst of work it returns memory to the kernel. The start is the first burst: it
// reads several times as much as it keeps. If GOGC is set, paceCollector does nothing.
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

// giveBack returns the memory of the last burst of work: its data, and the pages of the
// program that it ran.
func (b *Bridge) giveBack() {
	debug.FreeOSMemory()
	if err := footprint.ReleaseProgram(); err != nil {
		b.log.Warn("return unused memory of the program to the kernel", "err", err)
	}
}

// burst watches for the end of bursts of work, and for idle times.
type burst struct {
	allocated uint64 // by the process in all its time
	since     uint64 // of these, since the last time that memory was returned
	rested    int    // the number of times in a row that no more than restRate was allocated
	idle      int    // the number of times in a row that no more than idleRate was allocated
}

// over reports that memory must be returned: a burst is over, or the process is idle. It is called every
// paceEvery, with the number of bytes allocated since the start.
func (b *burst) over(allocated uint64) bool {
	step := allocated - b.allocated
	b.allocated = allocated
	b.since += step
	if b.rested++; step > restRate {
		b.rested = 0
	}
	if b.idle++; step > idleRate {
		b.idle = 0
	}
	if (b.rested < restFor || b.since < burstSize) && (b.idle < idleFor || b.since < idleSize) {
		return false
	}
	b.since = 0
	return true
}

// lasts reports whether there was a burst at the last call of over.
func (b *burst) lasts() bool { return b.rested == 0 && b.since >= burstSize }

func collectorPercent(live uint64, burst bool) int {
	least := uint64(minPercent)
	if burst {
		least = burstPercent
	}
	return int(min(maxPercent, max(least, headroom*100/max(live, 1))))
}
