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

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// keptHeap bounds the growth of this process's heap after all storms. A leak of 5,000 pods would be
// larger.
const keptHeap = 24 << 20

// withDir configures a bridge to keep its datastore in a folder.
func withDir(dir string) bridgetest.Option {
	return func(cfg *bridge.Config) { cfg.Datastore.Dir = dir }
}

// footprint has the resources of a process without work.
type footprint struct {
	heap       uint64
	goroutines map[string]int // by their functions
}

// calm returns the footprint of a bridge that has finished some work.
func (w *world) calm(t *testing.T, b running) footprint {
	t.Helper()
	load := kubetest.PodLoad{Count: 250, Namespaces: stormNamespaces, Nodes: stormNodes, Prefix: "calm-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	w.awaitNoLease(t, b)
	return footprint{heap(), goroutines()}
}

// awaitNoLease waits until all released leases have rested and are deleted.
func (w *world) awaitNoLease(t *testing.T, b running) {
	t.Helper()
	await(t, converge, "no lease is left", func() error {
		if n := len(b.leases()); n > 0 {
			return fmt.Errorf("%d leases", n)
		}
		return nil
	})
}

// requireNothingLeft removes the nodes of a cluster without pods, which has only the service of the API
// server. It requires that the bridge uses no more resources than before, and has no records left.
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
		"the remaining records are the networks of nodes, the mark that every source was listed, the history of the datastore, and the address of the API server's service")
}

// heap returns the size of the live heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // frees memory that finalizers and pools kept during the first collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// goroutines counts the goroutines, by the function that started them and their present function.
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

// records returns the names of the leader's records in the datastore of a stopped bridge.
func records(t *testing.T, dir string) []string {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	var data *datastore.Datastore
	bridgetest.WhenFree(t, func() (err error) {
		data, err = datastore.Open(ctx, datastore.Config{Dir: dir, Schema: schema, Log: slog.New(slog.DiscardHandler)})
		return err
	})
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
