package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Workers is the number of concurrent requests of a load, which saturates the API server of a small machine.
const Workers = 20

// Timings are the durations of the calls of a load.
type Timings struct {
	Total time.Duration   // from the first call to the end of the last
	Calls []time.Duration // of each call, sorted
}

// Rate returns the calls per second.
func (t Timings) Rate() float64 { return float64(len(t.Calls)) / t.Total.Seconds() }

// Percentile returns the time within which a share of the calls, from 0 to 1, ended.
func (t Timings) Percentile(p float64) time.Duration {
	if len(t.Calls) == 0 {
		return 0
	}
	return t.Calls[int(float64(len(t.Calls)-1)*p)]
}

func (t Timings) String() string {
	ms := func(p float64) float64 { return float64(t.Percentile(p).Microseconds()) / 1000 }
	return fmt.Sprintf("%d in %.2f s, %.0f/s, p50 %.1f ms, p99 %.1f ms", len(t.Calls), t.Total.Seconds(), t.Rate(), ms(0.5), ms(0.99))
}

// Each calls f with 0 to n-1, from a number of workers, each call with a deadline. At the first error it waits for the
// calls in progress, and returns.
func Each(ctx context.Context, n, workers int, f func(ctx context.Context, i int) error) (Timings, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	took := make([]time.Duration, n)
	start := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				begun := time.Now()
				if err := call(ctx, i, f); err != nil {
					cancel(err)
				}
				took[i] = time.Since(begun)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Timings{}, err
	}
	total := time.Since(start)
	slices.Sort(took)
	return Timings{Total: total, Calls: took}, nil
}

func call(ctx context.Context, i int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx, i)
}
