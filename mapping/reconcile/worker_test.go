package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestWorkerRestsUnderLoad marks scopes every so often, each batch taking 2 ms.
func TestWorkerRestsUnderLoad(t *testing.T) {
	for _, c := range []struct {
		every  time.Duration
		burst  int           // scopes marked a moment after one another
		behind time.Duration // the longest that a scope waits for its batch
	}{
		{every: 50 * time.Millisecond, burst: 1, behind: 0},
		{every: 50 * time.Millisecond, burst: 2, behind: 2 * time.Millisecond},
		{every: time.Millisecond, burst: 1, behind: 2*time.Millisecond + restFactor*2*time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d every %s", c.burst, c.every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				marked := map[netvirt.Scope]time.Time{}
				var behind time.Duration
				processed := 0
				w := newWorker(func(_ context.Context, scopes []netvirt.Scope) error {
					for _, s := range scopes {
						behind = max(behind, time.Since(marked[s]))
					}
					processed += len(scopes)
					time.Sleep(2 * time.Millisecond) //nolint:forbidigo // in a bubble: the time that the work takes
					return nil
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					w.run(ctx)
				}()
				for i := range 100 {
					s := netvirt.Scope(fmt.Sprint(i))
					synctest.Wait()
					marked[s] = time.Now()
					w.mark(s)
					if (i+1)%c.burst == 0 {
						time.Sleep(c.every) //nolint:forbidigo // in a bubble
					}
				}
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble
				synctest.Wait()
				require.Equal(t, 100, processed)
				require.LessOrEqual(t, behind, c.behind)
				cancel()
				<-done
			})
		})
	}
}

// A worker that rested is not kept at it by what comes now and then.
func TestWorkerRestsNoLongerThanTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var begun time.Time
		w := newWorker(func(context.Context, []netvirt.Scope) error {
			begun = time.Now()
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in a bubble: the time that the work takes
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.run(ctx)
		}()
		for range 100 { // a storm
			w.mark("shop")
			time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble
		}
		var waited time.Duration
		for i := range 40 {
			marked := time.Now()
			w.mark("shop")
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // in a bubble
			synctest.Wait()
			if i >= 20 {
				waited = max(waited, begun.Sub(marked))
			}
		}
		require.Zero(t, waited, "a second after the storm each mark is processed at once")
		cancel()
		<-done
	})
}

// TestRestsThatWouldCollectNothing: process asks for a rest, which is not made after a full batch, nor after an error.
func TestRestsThatWouldCollectNothing(t *testing.T) {
	for name, c := range map[string]struct {
		scopes int
		err    error
		rested time.Duration
	}{
		"it succeeds":  {maxBatch - 1, nil, time.Second},
		"a full batch": {maxBatch, nil, 0},
		"an error":     {1, errors.New("broken"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var w *worker
				w = newWorker(func(context.Context, []netvirt.Scope) error {
					w.pause = time.Second
					return c.err
				})
				var rested time.Duration
				w.rested = func(took time.Duration) { rested += took }
				scopes := make([]netvirt.Scope, c.scopes)
				for i := range scopes {
					scopes[i] = netvirt.Scope(strconv.Itoa(i))
				}
				w.mark(scopes...)
				var all sync.WaitGroup
				all.Go(func() { w.run(ctx) })
				synctest.Wait()
				<-time.After(time.Second)
				synctest.Wait()
				require.Equal(t, c.rested, rested)
				cancel()
				all.Wait()
			})
		})
	}
}

// Callers that each wait for what they asked for, as container runtimes do, are not kept
// waiting by rests, though they keep the worker busy.
func TestWorkerDoesNotRestForAFewCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work = 5 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		processed := make(chan struct{}, 1000)
		w := newWorker(func(context.Context, []netvirt.Scope) error {
			time.Sleep(work) //nolint:forbidigo // in a bubble: the time that the work takes
			processed <- struct{}{}
			return nil
		})
		var all sync.WaitGroup
		all.Go(func() { w.run(ctx) })
		var waited time.Duration
		for range 200 {
			marked := time.Now()
			w.mark("shop")
			<-processed
			waited = max(waited, time.Since(marked))
			time.Sleep(work / 2) //nolint:forbidigo // in a bubble: until the next of the callers asks
		}
		require.Equal(t, work, waited)
		cancel()
		all.Wait()
	})
}
