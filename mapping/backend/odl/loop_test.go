package odl_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// TestNoHotLoop: during a lasting fault, reconcile.Loop with its watch makes at most some
// dozens of requests a second, and logs a few lines. When the fault is over, all is written.
func TestNoHotLoop(t *testing.T) {
	const lasts, most = 2 * time.Second, 100
	for name, fault := range map[string]odlfake.Fault{
		"503":             answer(http.StatusServiceUnavailable, "", ""),
		"404":             answer(http.StatusNotFound, "", ""),
		"401":             answer(http.StatusUnauthorized, "", ""),
		"HTML":            answer(http.StatusOK, "text/html", "<html>Welcome</html>"),
		"truncated JSON":  answer(http.StatusOK, "application/json", `{"elan-instances":{"elan-instance":[{"elan-inst`),
		"cut":             cut,
		"hung":            hang,
		"500 to writes":   toWrites(answer(http.StatusInternalServerError, "text/html", "<html>")),
		"503 to writes":   toWrites(answer(http.StatusServiceUnavailable, "", "")),
		"401 to writes":   toWrites(answer(http.StatusUnauthorized, "", "")),
		"hung at writing": toWrites(hang),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, odlfake.Oxygen)
			cfg := f.config(t)
			cfg.Probe, cfg.Poll = 5*time.Second, 15*time.Second
			if strings.HasPrefix(name, "hung") {
				cfg.Timeout = time.Second
			}
			var log logged
			b, err := odl.New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			t.Cleanup(b.Close)
			f.Break(fault)
			loop := runLoop(t, b, odltest.PodsOf("a", "b", "c"), &log)
			<-time.NewTimer(lasts).C // so that the loop's back-off grows
			f.Requests()
			<-time.NewTimer(lasts).C
			requests := 0
			for _, n := range f.Requests() {
				requests += n
			}
			require.LessOrEqual(t, requests, most)
			require.LessOrEqual(t, strings.Count(log.String(), "\n"), 6, log.String())
			f.Break(nil)
			require.Eventually(t, func() bool { return loop.Status().InSync }, patience, 10*time.Millisecond)
		})
	}
}

// toWrites limits a fault to requests that write.
func toWrites(fault odlfake.Fault) odlfake.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool { return r.Method != http.MethodGet && fault(w, r) }
}

// fixed is a reconcile.Source that never changes.
type fixed map[netvirt.Scope]netvirt.Parts

func (f fixed) Want(s netvirt.Scope) (netvirt.Parts, []coe.Problem) { return f[s], nil }
func (f fixed) Scopes() []netvirt.Scope                             { return slices.Collect(maps.Keys(f)) }
func (fixed) Complete() bool                                        { return true }
func (fixed) Revision() int64                                       { return 1 }
func (fixed) CaughtUp() bool                                        { return true }

// runLoop runs a loop that writes a model, until the test ends.
func runLoop(t *testing.T, b *odl.Backend, want netvirt.Model, log *logged) *reconcile.Loop {
	t.Helper()
	loop := reconcile.New(reconcile.Config{Timeout: patience}, "odl", b, fixed(want.ByScope()),
		reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return loop
}
