package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// lookInterval is more than how old what Look found may be.
const lookInterval = 2 * time.Second

// standby is a loop that does not run, over a world that another one writes to.
func (w *world) standby() *reconcile.Loop {
	return reconcile.New(reconcile.Config{}, "memory", w, w.source(),
		reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
}

// leader writes what is wanted.
func (w *world) leader(t *testing.T) {
	t.Helper()
	have, err := w.Backend.Read(t.Context())
	require.NoError(t, err)
	want := netvirt.Model{}
	for _, m := range w.models {
		for _, o := range m {
			want.Add(o)
		}
	}
	require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(have, want)))
}

func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := w.standby()
		look := func() bool {
			<-time.After(lookInterval) // of the bubble's clock
			l.Look(t.Context())
			return l.Status().InSync
		}
		require.False(t, l.Status().InSync, "nobody has looked")
		require.True(t, look())

		w.want("a", 2)
		w.want("b", 1)
		require.False(t, look(), "the leader has not written")
		w.leader(t)
		require.True(t, look())
		require.Zero(t, w.writes.Load(), "a standby does not write")

		// A later change leaves the backend behind, even if it was compared a moment ago.
		l.Look(t.Context())
		l.Note("a")
		require.False(t, l.Status().InSync)
		l.Look(t.Context())
		require.False(t, l.Status().InSync)
		require.True(t, look())

		// A namespace goes before the backend's objects do.
		w.set(func() { delete(w.models, "b") })
		require.False(t, look())
		w.leader(t)
		require.True(t, look())
		for _, s := range l.Status().Scopes {
			require.NotEqual(t, netvirt.Scope("b"), s.Scope)
		}

		w.set(func() { w.failing = errors.New("it is away") })
		require.False(t, look())
		require.Contains(t, l.Status().Peer.LastError, "it is away")
		w.set(func() { w.failing = nil })
		require.True(t, look())
		l.Close()
	})
}

// hung is a backend that does not answer.
type hung struct{ *world }

func (hung) Read(ctx context.Context) (netvirt.Model, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLookAtABackendThatHangs returns after a time, and does not keep a loop from being closed.
func TestLookAtABackendThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := reconcile.New(reconcile.Config{}, "hung", hung{w}, w.source(),
			reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		begun := time.Now()
		l.Look(t.Context())
		require.Less(t, time.Since(begun), 15*time.Second)
		require.Equal(t, begun, l.Status().Looking)
		require.False(t, l.Status().InSync)

		waiting, cancel := context.WithCancel(t.Context())
		cancel()
		begun = time.Now()
		l.Look(waiting) // who gives up need not wait
		looked := make(chan struct{})
		go func() { defer close(looked); l.Look(t.Context()) }()
		synctest.Wait()
		l.Close()
		<-looked
		require.Zero(t, time.Since(begun))
		l.Look(t.Context())
		require.Zero(t, l.Status().Looking)
		require.Zero(t, time.Since(begun))
	})
}

// slow is a backend whose Read takes a time.
type slow struct {
	*world
	takes time.Duration
	reads int
}

func (s *slow) Read(ctx context.Context) (netvirt.Model, error) {
	s.reads++
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.world.Read(ctx)
}

// TestLookAtALargeBackend: a client waits for some seconds, and the comparison goes on without it. Until it ends, the status has the
// results of the one before and their age. Many requests cause one comparison.
func TestLookAtALargeBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.want("a", 2)
		w.leader(t)
		b := &slow{world: w, takes: 35 * time.Second}
		l := reconcile.New(reconcile.Config{}, "slow", b, w.source(), reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		first := time.Now()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			l.Look(ctx)
			cancel() // the request has ended
			require.Equal(t, first, l.Status().Looking)
			require.False(t, l.Status().InSync)
		}
		<-time.After(10 * time.Second)
		require.True(t, l.Status().InSync)
		require.Equal(t, first, l.Status().Compared)
		require.Equal(t, 1, b.reads)

		<-time.After(25 * time.Second)
		l.Look(t.Context())
		require.Equal(t, 1, b.reads, "comparisons take half of the time at most")
		<-time.After(10 * time.Second)
		second := time.Now()
		w.want("b", 1)
		l.Note("b")
		l.Look(t.Context())
		st := l.Status()
		require.Equal(t, first, st.Compared)
		require.Equal(t, second, st.Looking)
		require.True(t, st.Peer.OK)
		require.False(t, st.InSync, "it was noted since")
		<-time.After(40 * time.Second)
		require.Equal(t, second, l.Status().Compared)
		require.False(t, l.Status().InSync, "the leader has not written")
		w.leader(t)

		<-time.After(time.Hour)
		l.Look(t.Context())
		<-time.After(40 * time.Second)
		require.True(t, l.Status().InSync)
		<-time.After(time.Hour)
		require.False(t, l.Status().InSync, "that is too long ago")
		l.Close()
	})
}
