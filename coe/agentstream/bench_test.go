package agentstream

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchNodes = 50

// BenchmarkWriteToEvent is how long it takes from the leader's write of a lease to
// the event at the agent of its node, and, as a part of that, to the end of the
// write: 50 agents, a thousand pods a second at most. Run it with -benchtime=5000x.
func BenchmarkWriteToEvent(b *testing.B) {
	bed := newBed(b)
	r := bed.replica()
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var mu sync.Mutex
	begun, took, wrote := make([]time.Time, b.N), make([]time.Duration, 0, b.N), make([]time.Duration, b.N)
	all := make(chan struct{})
	hear := func(o told) {
		now := time.Now()
		var i int
		if _, err := fmt.Sscanf(o.Pod[24:], "%d", &i); err != nil {
			b.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, now.Sub(begun[i]))
		if len(took) == b.N {
			close(all)
		}
	}
	for i := range benchNodes {
		a := newAgent(b, nodeName(i))
		a.hear = hear
		running.Go(func() { _ = a.follow(ctx, r.url, 1<<30) })
		require.Eventually(b, func() bool { return a.at() != "" }, 5*time.Second, time.Millisecond)
	}
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		<-time.After(time.Until(start.Add(time.Duration(i) * time.Millisecond)))
		uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
		key := "lease/" + uid + "/" + uid
		value := records(b, lease(uid, nodeName(i%benchNodes)))["chosen/"+key]
		mu.Lock()
		begun[i] = time.Now()
		mu.Unlock()
		require.NoError(b, bed.chosen.Commit(ctx, map[string][]byte{key: value}, nil))
		wrote[i] = time.Since(begun[i])
	}
	<-all
	b.StopTimer()
	report(b, took, "event")
	report(b, wrote, "write")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}

func report(b *testing.B, took []time.Duration, what string) {
	slices.Sort(took)
	b.ReportMetric(float64(took[b.N/2].Microseconds())/1000, what+"-p50-ms")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds())/1000, what+"-p99-ms")
}

// BenchmarkApply is what the Hub takes for one lease, and what it keeps.
func BenchmarkApply(b *testing.B) {
	h := newHub()
	var before, after runtime.MemStats
	batches := make([]Batch, b.N)
	for i := range b.N {
		uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
		batches[i] = Batch{Revision: int64(i + 2), Put: records(b, lease(uid, nodeName(i%benchNodes)))}
	}
	h.Apply(Batch{Revision: 1, Snapshot: true, Put: listed(b)})
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for _, batch := range batches {
		h.Apply(batch)
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "kept-B/op")
	runtime.KeepAlive(batches)
	runtime.KeepAlive(h)
}
