package ipam_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

// BenchmarkOneChange is the Sync of a namespace of 10,000 pods of which one changed.
func BenchmarkOneChange(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	w.put(manyPods(10000, 10, 1)...)
	w.sync()
	i := 0
	for b.Loop() {
		p := newPod("extra", n1, in("ns0"))
		if p.NoNetwork = i%2 == 1; p.NoNetwork {
			w.now = w.now.Add(60e9)
		}
		i++
		w.put(p)
		_, _, err := w.assigner.Sync(b.Context(), []string{"ns0"})
		require.NoError(b, err)
	}
}

// BenchmarkView is what the store needs for the snapshot that OneChange takes.
func BenchmarkView(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	w.put(manyPods(10000, 10, 1)...)
	w.sync()
	for b.Loop() {
		w.store.View("ns0")
	}
}

// BenchmarkBurst is the Sync of 5,000 new pods of 20 namespaces on 10 nodes.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
		w.put(manyPods(5000, 10, 20)...)
		b.StartTimer()
		w.sync()
	}
}

// BenchmarkExhausted is the Sync of a namespace of 10,000 pods that a pool can't serve.
func BenchmarkExhausted(b *testing.B) {
	w := newWorld(b, specPool())
	w.put(manyPods(10000, 10, 1)...)
	w.sync()
	for b.Loop() {
		_, _, err := w.assigner.Sync(b.Context(), []string{"ns0"})
		require.NoError(b, err)
	}
	require.NotEmpty(b, w.store.View("ns0").Refusals)
}

// BenchmarkLoad is the start with 50,000 leases in 200 namespaces.
func BenchmarkLoad(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	w.put(manyPods(50000, 10, 200)...)
	w.sync()
	for b.Loop() {
		w.restart()
	}
	require.Len(b, w.store.View("ns0").Leases, 250)
	w.store.Update(func(tx *coe.Tx) { tx.SetComplete(coe.RESTCONF) })
}
