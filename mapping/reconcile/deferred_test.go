package reconcile_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// late is a backend that defers the deletions of interfaces of a namespace.
type late struct {
	*world
	of       string
	deferred atomic.Int64 // writes
	ready    atomic.Bool
}

func (b *late) Write(ctx context.Context, changes []netvirt.Change) error {
	have := map[netvirt.Key]netvirt.Object{}
	made := slices.DeleteFunc(slices.Clone(changes), func(c netvirt.Change) bool {
		i, is := c.Old.(netvirt.Interface)
		waits := is && c.New == nil && i.Namespace == b.of && !b.ready.Load()
		if waits {
			have[c.Key()] = c.Old
		}
		return waits
	})
	if err := b.world.Write(ctx, made); err != nil || len(have) == 0 {
		return err
	}
	b.deferred.Add(1)
	return &netvirt.DeferredError{Have: have}
}

// TestDeferred: while a backend defers changes of a scope, the loop repeats them, and programs other scopes. The scope is behind.
func TestDeferred(t *testing.T) {
	b := &late{world: newWorld(), of: "slow"}
	b.models[netvirt.Cluster], b.models["slow"] = transit(), podOf("slow", "10.0.0.1")
	l := reconcile.New(reconcile.Config{}, "memory", b, b.source(), reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	b.awaitInSync(t, l)

	b.set(func() { delete(b.models, "slow") })
	l.Mark("slow")
	require.Eventually(t, func() bool { return b.deferred.Load() >= 2 }, patience.Patience, time.Millisecond, "it is repeated")
	b.set(func() { b.models["other"] = podOf("other", "10.0.0.2") })
	l.Mark("other")
	require.Eventually(t, func() bool {
		return l.Has("other", netvirt.Interface{Name: "other:pod"}.Key()) != nil
	}, patience.Patience, time.Millisecond)
	st := l.Status()
	require.False(t, st.InSync)
	require.True(t, st.Peer.OK)
	slow := netvirt.Interface{Name: "slow:pod"}.Key()
	require.NotNil(t, l.Has("slow", slow), "the backend still has it")
	require.Nil(t, l.Has("slow", netvirt.ELANInstance{Name: "192.168.0.1:slow"}.Key()))

	b.ready.Store(true)
	require.Eventually(t, func() bool { return l.Status().InSync }, patience.Patience, time.Millisecond)
	require.Nil(t, l.Has("slow", slow))
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.Nil(t, have[slow])
	require.NotNil(t, have[netvirt.Interface{Name: "other:pod"}.Key()])
}
