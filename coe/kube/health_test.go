package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// TestHealthLogsChanges: a problem that lasts is logged once for all resources that share it, and so is its end.
func TestHealthLogsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHealth(slog.New(slog.NewTextHandler(&log, nil)), newMetrics(prometheus.NewRegistry()))
		pods, nodes := h.of(resource{name: "pods"}), h.of(resource{name: "nodes"})
		logged := func(failed, again int) {
			t.Helper()
			require.Equal(t, failed, strings.Count(log.String(), "cannot watch Kubernetes"), log.String())
			require.Equal(t, again, strings.Count(log.String(), "watching Kubernetes again"), log.String())
		}
		fail := func() {
			pods.failed(errSilent)
			nodes.failed(errSilent)
		}
		fail()
		pods.watching()
		nodes.watching()
		logged(0, 0) // it did not last
		for round := range 2 {
			fail()
			<-time.After(patience)
			fail()
			fail()
			logged(1+round, round)
			pods.watching()
			logged(1+round, round) // nodes are not watched yet
			pods.failed(errSilent)
			<-time.After(patience)
			pods.failed(errSilent)
			logged(1+round, round)
			pods.watching()
			nodes.watching()
			logged(1+round, 1+round)
		}
	})
}
