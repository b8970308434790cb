package odl_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// TestNoHotLoop: under the loop that reads and writes, with its watch, a fault that lasts costs
// some dozens of requests a second at most, when the first of them were for nothing, and a few
// lines in the log, and when it is over all is written.
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
			cfg.Timeout, cfg.Probe, cfg.Poll = time.Second, 5*time.Second, 15*time.Second
			var log logged
			b, err := odl.New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			t.Cleanup(b.Close)
			f.Break(fault)
			loop := runLoop(t, b, podsOf("a", "b", "c"), &log)
			<-time.NewTimer(lasts).C // the loop's back-off grows
			f.Requests()
			<-time.NewTimer(lasts).C
			requests := 0
			for _, n := range f.Requests() {
				requests += n
			}
			require.LessOrEqual(t, requests, most)
			require.LessOrEqual(t, strings.Count(log.String(), "\n"), 6, log.String())
			f.Break(nil)
			require.Eventually(t, func() bool { return loop.Status().InSync }, 3*patience, 10*time.Millisecond)
		})
	}
}

// toWrites has a fault meet requests that write alone.
func toWrites(fault odlfake.Fault) odlfake.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool { return r.Method != http.MethodGet && fault(w, r) }
}

// runLoop has a loop make a backend agree with a model until the test is over.
func runLoop(t *testing.T, b *odl.Backend, want netvirt.Model, log *logged) *reconcile.Loop {
	t.Helper()
	scopes := want.ByScope()
	loop := reconcile.New(reconcile.Config{Timeout: patience}, "odl", b, reconcile.Source{
		Want:     func(s netvirt.Scope) (netvirt.Parts, []coe.Problem) { return scopes[s], nil },
		Complete: func() bool { return true },
		Scopes: func() (all []netvirt.Scope) {
			for s := range scopes {
				all = append(all, s)
			}
			return all
		},
		Revision: func() int64 { return 1 },
		Heard:    func() bool { return true },
	}, reconcile.NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return loop
}
