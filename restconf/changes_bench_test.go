package restconf

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/changes"
)

const benchSubscribers = 100

// BenchmarkWriteToEvent is how long it takes from the begin of a client's write to
// its event at each of 100 subscribers, at a hundred writes a second, and, as a part
// of that, to the write's answer. Run it with -benchtime=500x.
func BenchmarkWriteToEvent(b *testing.B) {
	bed := newBed(b)
	at := served(b, bed.Server)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var mu sync.Mutex
	begun, wrote, took := make([]time.Time, b.N), make([]time.Duration, b.N), make([]time.Duration, 0, b.N*benchSubscribers)
	all := make(chan struct{})
	hear := func(line []byte) {
		now := time.Now()
		_, after, found := bytes.Cut(line, []byte("pods=9f2a6d5e-0000-4000-8000-"))
		if !found {
			return
		}
		var i int
		if _, err := fmt.Sscanf(string(after[:12]), "%d", &i); err != nil {
			b.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if took = append(took, now.Sub(begun[i])); len(took) == cap(took) {
			close(all)
		}
	}
	var ready sync.WaitGroup
	for range benchSubscribers {
		ready.Add(1)
		running.Go(func() { subscribe(ctx, b, at, ready.Done, hear) })
	}
	ready.Wait()
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		<-time.After(time.Until(start.Add(time.Duration(i) * 10 * time.Millisecond)))
		uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
		mu.Lock()
		begun[i] = time.Now()
		mu.Unlock()
		require.Equal(b, 201, bed.do("PUT", podsRFC+uid, podRFC(uid)).status)
		wrote[i] = time.Since(begun[i])
	}
	<-all
	b.StopTimer()
	for what, all := range map[string][]time.Duration{"event": took, "write": wrote} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, what+"-p99-ms")
	}
}

// subscribe hears the stream of pods, line by line, after the snapshot.
func subscribe(ctx context.Context, b *testing.B, at string, ready func(), hear func([]byte)) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/rests/streams/changes=pod:coe", nil)
	if err != nil {
		b.Error(err)
		return
	}
	r.SetBasicAuth("admin", "admin")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		if bytes.Contains(scan.Bytes(), []byte(changes.Complete)) {
			ready()
		}
		hear(scan.Bytes())
	}
}
