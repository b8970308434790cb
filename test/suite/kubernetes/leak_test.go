package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/yang"
)

// keptHeap is by how much the heap of this process may be larger when all storms
// are over. Of 5,000 pods that were forgotten badly it would be more.
const keptHeap = 24 << 20

// withDir has a bridge keep its datastore in a folder.
func withDir(dir string) bridgetest.Option {
	return func(cfg *bridge.Config) { cfg.Datastore.Dir = dir }
}

// footprint is what a process takes that has nothing to do.
type footprint struct {
	heap       uint64
	goroutines map[string]int // by their functions
}

// calm is the footprint of a bridge that has had something to do, and has nothing left.
func (w *world) calm(t *testing.T, b running) footprint {
	t.Helper()
	load := kubetest.PodLoad{Count: 500, Namespaces: stormNamespaces, Nodes: stormNodes, Prefix: "calm-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	w.awaitNoLease(t, b)
	return footprint{heap(), goroutines()}
}

// awaitNoLease waits until what was released has rested, and is forgotten.
func (w *world) awaitNoLease(t *testing.T, b running) {
	t.Helper()
	await(t, converge, "no lease is left", func() error {
		if n := len(b.leases()); n > 0 {
			return fmt.Errorf("%d leases", n)
		}
		return nil
	})
}

// requireNothingLeft requires that a bridge whose cluster has no pods, no services
// but that of the API server, and in the end no nodes, is as it was, and has forgotten all.
func (w *world) requireNothingLeft(t *testing.T, b running, before footprint, dir string) {
	w.removeNodes(t, 0, stormNodes)
	w.awaitNoLease(t, b)
	w.awaitExact(t, b, converge)
	now, err := w.rows.read(t.Context())
	require.NoError(t, err)
	lines, err := now.lines()
	require.NoError(t, err)
	require.Len(t, lines, 2, "the transit and the API server's load balancer: %s", strings.Join(lines, "\n"))

	await(t, converge, "no goroutine more than before", func() error {
		var errs []error
		for name, n := range goroutines() {
			if n > before.goroutines[name] {
				errs = append(errs, fmt.Errorf("%d goroutines instead of %d: %s", n, before.goroutines[name], name))
			}
		}
		return errors.Join(errs...)
	})
	after := heap()
	t.Logf("heap %.1f MiB before, %.1f MiB after", float64(before.heap)/(1<<20), float64(after)/(1<<20))
	require.Less(t, after, before.heap+keptHeap, "bytes of heap")

	b.Stop()
	require.ElementsMatch(t, []string{"chosen/networks/", "complete/sources", "history", "vips/10.96.0.1"}, records(t, dir),
		"no records of what was chosen and confirmed, but what any node has to know, that every source was heard, the history of the datastore, and the address of the API server's service")
}

// heap is what of the heap lives.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have kept through the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// goroutines counts the goroutines by what started them and what they are at.
func goroutines() map[string]int {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	out := map[string]int{}
	for stack := range bytes.SplitSeq(text, []byte("\n\n")) {
		_, created, _ := bytes.Cut(stack, []byte("created by "))
		function, _, _ := bytes.Cut(created, []byte(" in goroutine"))
		out[string(function)]++
	}
	return out
}

// records are the names of the leader's records in the datastore of a bridge that
// was stopped.
func records(t *testing.T, dir string) []string {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	data, err := datastore.Open(ctx, datastore.Config{Dir: dir, Schema: schema, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, data.Close()) }()
	var names []string
	enough := errors.New("the snapshot is read")
	err = data.FollowRecords(ctx, "", func(b datastore.RecordBatch) error {
		for name := range b.Put {
			names = append(names, name)
		}
		return enough
	})
	require.ErrorIs(t, err, enough)
	return names
}
