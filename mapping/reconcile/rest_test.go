package reconcile_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// pacer is a network that takes always as long.
type pacer time.Duration

func (p pacer) Rest() time.Duration { return time.Duration(p) }

// restSeconds returns the sum of all rests.
func restSeconds(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	all, err := registry.Gather()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == "coe_bridge_backend_rest_seconds_total" })
	require.GreaterOrEqual(t, i, 0)
	return all[i].GetMetric()[0].GetCounter().GetValue()
}

// TestRestAfterAWrite: the first write waits for nothing. Changes that come in a rest are in one write at its end, and the end of the
// context ends the rest.
func TestRestAfterAWrite(t *testing.T) {
	const rest = 400 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w, registry := newWorld(), prometheus.NewRegistry()
		l := reconcile.New(reconcile.Config{Pacer: pacer(rest)}, "memory", w, w.source(), reconcile.NewMetrics(registry), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) })
		change := func(namespace string) {
			w.want(namespace, 1)
			l.Mark(netvirt.Scope(namespace))
		}
		writes := func() int {
			synctest.Wait()
			return int(w.writes.Load())
		}
		require.Zero(t, writes())

		change("a")
		require.Equal(t, 1, writes())
		elapse(rest / 2)
		change("b")
		change("c")
		elapse(rest/2 - 1)
		require.Equal(t, 1, writes())
		elapse(1)
		require.Equal(t, 2, writes())
		w.requireInSync(t, l)

		elapse(rest)
		change("d")
		require.Equal(t, 3, writes(), "after a quiet time")
		elapse(rest)
		l.Mark("d")
		synctest.Wait()
		change("e")
		require.Equal(t, 4, writes(), "no rest if nothing was written")
		require.InDelta(t, 3*rest.Seconds(), restSeconds(t, registry), 1e-9)

		change("f")
		begun := time.Now()
		cancel()
		running.Wait()
		require.Equal(t, begun, time.Now())
	})
}
