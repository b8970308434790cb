package reconcile

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestProcessedIsNotBehind: on a clock that does not move between the mark and
// the batch, too.
func TestProcessedIsNotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(func(context.Context, []netvirt.Scope) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		w.mark("a")
		require.Len(t, w.lag(), 1)
		go w.run(ctx)
		synctest.Wait()
		require.Empty(t, w.lag())
		cancel()
		time.Sleep(time.Second) //nolint:forbidigo // in the bubble: until the queue has shut down
	})
}

// TestMarkedTogether: what is marked together is processed together, so that
// what goes from one scope to another goes in one write.
func TestMarkedTogether(t *testing.T) {
	batches := make(chan int, 1)
	w := newWorker(func(_ context.Context, scopes []netvirt.Scope) error {
		batches <- len(scopes)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	for range 300 {
		w.mark("a", "b", "c")
		require.Equal(t, 3, <-batches)
		require.Eventually(t, func() bool { return len(w.lag()) == 0 }, patience.Patience, time.Microsecond)
	}
	cancel()
	<-done
}

// TestRepeatedTogether: scopes that are repeated are in one batch, also if one of them was processed in between.
func TestRepeatedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := make(chan []netvirt.Scope, 3)
		var w *worker
		var over atomic.Bool
		w = newWorker(func(_ context.Context, scopes []netvirt.Scope) error {
			batches <- scopes
			<-time.After(time.Millisecond) // a batch takes time
			if !over.Load() {
				w.repeat(scopes...)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx)
		w.mark("a", "b", "c")
		require.Len(t, <-batches, 3)
		w.mark("b")
		require.Equal(t, []netvirt.Scope{"b"}, <-batches)
		<-time.After(2 * time.Millisecond)
		require.Len(t, w.lag(), 3, "they are behind")
		over.Store(true)
		require.ElementsMatch(t, []netvirt.Scope{"a", "b", "c"}, <-batches)
		<-time.After(2 * time.Millisecond)
		require.Empty(t, w.lag())
		require.Empty(t, batches)
		cancel()
		<-time.After(time.Second) // in the bubble: until the queue has shut down
		require.Empty(t, batches)
	})
}

// TestManyRepeatedTogether: scopes that are repeated are in one batch, also if they are more than others have.
func TestManyRepeatedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := make(chan int, 3)
		var w *worker
		w = newWorker(func(_ context.Context, scopes []netvirt.Scope) error {
			<-time.After(time.Millisecond)
			if batches <- len(scopes); len(scopes) <= maxBatch {
				w.repeat(scopes...)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx)
		var all []netvirt.Scope
		for i := range maxBatch + 100 {
			all = append(all, netvirt.Scope(strconv.Itoa(i)))
		}
		w.mark(all...)
		require.Equal(t, maxBatch, <-batches)
		require.Equal(t, 100, <-batches)
		require.Equal(t, maxBatch+100, <-batches)
		cancel()
		<-time.After(time.Second) // in the bubble: until the queue has shut down
	})
}
