package agentstream

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
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
		require.Eventually(b, func() bool { return a.at() != "" }, patience.Patience, time.Millisecond)
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

// BenchmarkSharedPorts is a changed endpoint of one of many local ports whose endpoints every node has, what the Hub keeps for each
// port and node, and how large the port is for an agent.
func BenchmarkSharedPorts(b *testing.B) {
	const endpoints = 10
	for _, n := range []int{50, 5000} {
		port := func(i, version int) coe.ExposedPort {
			p := coe.ExposedPort{
				Protocol: "tcp", Port: uint16(20000 + i), Namespace: "shop", To: netip.MustParseAddrPort("10.96.0.10:80"),
				Local: true, Shared: true, Every: true, Endpoints: map[netip.Addr][]netip.AddrPort{},
			}
			for e := range endpoints {
				at := netip.AddrFrom4([4]byte{10, 42, byte(e), byte(version)})
				p.Endpoints[netip.MustParseAddr(nodeName((i+e)%benchNodes))] = []netip.AddrPort{netip.AddrPortFrom(at, 8080)}
			}
			return p
		}
		all := map[string][]byte{networksRecord: []byte(networks), CompleteRecord: []byte("x")}
		for i := range benchNodes {
			maps.Copy(all, nodeRecord(nodeName(i), i+1))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		h, size := newHub(), 0
		for i := range n {
			maps.Copy(all, exposedPorts(port(i, 0)))
		}
		h.Apply(Batch{Revision: 1, Snapshot: true, Put: all})
		size = len(all["exposed/tcp/20000"])
		clear(all)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.Run(fmt.Sprint(n, " ports"), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				h.Apply(Batch{Revision: int64(i + 2), Put: exposedPorts(port(7, 1+i%2))})
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n*benchNodes), "B/port-and-node")
			b.ReportMetric(float64(size), "B/record")
		})
		runtime.KeepAlive(h)
	}
}
