package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// nothingToClaim is a Claimer that is done at once.
type nothingToClaim struct{}

func (nothingToClaim) Sync(context.Context, []string) ([]string, time.Duration, error) {
	return nil, 0, nil
}

// TestInSyncIsNotSaidEarly: not in the moment either in which the claims hand a
// scope on.
func TestInSyncIsNotSaidEarly(t *testing.T) {
	w := newWorld()
	claims := reconcile.NewClaims(nothingToClaim{}, slog.New(slog.DiscardHandler))
	l, _ := w.startWith(t, reconcile.Config{Claims: claims})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		claims.Run(ctx, l)
	}()
	for i := range 300 {
		w.want("a", 1+i%2)
		claims.Mark("a")
		for !l.Status().InSync {
		}
		have, err := w.Backend.Read(t.Context())
		require.NoError(t, err)
		w.set(func() { require.Equal(t, w.models[netvirt.Scope("a")], have) })
	}
	cancel()
	<-done
}

// TestNamespaceUnknown: the backend has an object of a namespace without its namespace, because an external writer has
// changed it. The object is repaired, and not deleted as one of the cluster, whichever scope comes first.
func TestNamespaceUnknown(t *testing.T) {
	damaged := netvirt.VPNInstance{Name: "a", RouteDistinguisher: "damaged"}
	t.Run("together", func(t *testing.T) {
		w := newWorld()
		w.pods("a", "x")
		l, _ := w.start(t)
		w.requireInSync(t, l)
		<-w.watching
		before := w.writes.Load()
		require.NoError(t, w.Backend.Write(t.Context(), []netvirt.Change{{Old: w.models["a"][damaged.Key()], New: damaged}}))
		w.changed()
		require.Eventually(t, func() bool { return w.writes.Load() > before }, patience.Patience, time.Millisecond)
		w.requireInSync(t, l)
	})
	for _, order := range [][]netvirt.Scope{{"a", netvirt.Cluster}, {netvirt.Cluster, "a"}} {
		t.Run(fmt.Sprintf("%q", order), func(t *testing.T) {
			w := newWorld()
			w.pods("a", "x")
			require.NoError(t, w.Backend.Write(t.Context(), netvirt.Diff(nil, netvirt.Model{damaged.Key(): damaged})))
			l := reconcile.New(reconcile.Config{}, "memory", w, w.source(), reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
			for _, s := range order {
				require.NoError(t, reconcile.Process(l, t.Context(), []netvirt.Scope{s}))
			}
			have, err := w.Backend.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, w.models["a"], have)
		})
	}
}
