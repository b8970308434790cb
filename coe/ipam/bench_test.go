package ipam_test

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// BenchmarkOneChange measures the Sync of a namespace of 10,000 pods after one of them changed.
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

// BenchmarkManyNodes measures the Sync of one pod. Its cost must not depend on the number of
// nodes.
func BenchmarkManyNodes(b *testing.B) {
	for _, nodes := range []int{0, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
			w.store.Update(func(tx *state.Tx) {
				for i := range nodes {
					tx.PutNode(coe.RESTCONF, &coe.Node{UID: fmt.Sprint("n", i), InternalIP: netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})})
				}
			})
			w.put(newPod("p", n1))
			w.sync()
			for b.Loop() {
				_, _, err := w.assigner.Sync(b.Context(), []string{coe.DefaultNamespace})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkView measures the share of the store in BenchmarkOneChange: one View.
func BenchmarkView(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	w.put(manyPods(10000, 10, 1)...)
	w.sync()
	for b.Loop() {
		w.store.View("ns0")
	}
}

// BenchmarkBurst measures the Sync of 5,000 new pods in 20 namespaces on 10 nodes.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
		w.put(manyPods(5000, 10, 20)...)
		b.StartTimer()
		w.sync()
	}
}

// BenchmarkExhausted measures the Sync of a namespace of 10,000 pods with an exhausted pool.
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

// BenchmarkLoad measures the load of 50,000 leases in 200 namespaces.
func BenchmarkLoad(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	w.put(manyPods(50000, 10, 200)...)
	w.sync()
	for b.Loop() {
		w.restart()
	}
	require.Len(b, w.store.View("ns0").Leases, 250)
	w.store.Update(func(tx *state.Tx) { tx.SetComplete(coe.RESTCONF) })
}

// BenchmarkStorm measures 5,000 pods in 20 namespaces on 50 nodes. They arrive in batches of 60
// from all namespaces, which is the worst case for batches.
func BenchmarkStorm(b *testing.B) {
	pods := manyPods(5000, 50, 20)
	var used time.Duration
	for b.Loop() {
		w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
		begun := processorTime(b)
		for n := 0; n < len(pods); n += 60 {
			w.put(pods[n:min(n+60, len(pods))]...)
			require.NoError(b, w.trySync())
		}
		used += processorTime(b) - begun
	}
	b.ReportMetric(used.Seconds()/float64(b.N)/5, "cpu-s/1000pods")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkChurn measures the Sync after one of 5,000 pods in 20 namespaces is replaced by
// another.
func BenchmarkChurn(b *testing.B) {
	w := newWorld(b, pool("default", "10.0.0.0/8", "", "", ""))
	pods := manyPods(5000, 10, 20)
	w.put(pods...)
	w.sync()
	i, begun := 0, processorTime(b)
	for b.Loop() {
		p := *pods[i%len(pods)]
		w.store.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, p.UID) })
		p.UID = fmt.Sprintf("00000000-0000-4000-9000-%012d", i)
		p.Name = p.UID
		pods[i%len(pods)] = &p
		i++
		w.put(&p)
		w.now = w.now.Add(50 * time.Millisecond)
		w.marked = map[string]bool{p.Namespace: true}
		require.NoError(b, w.trySync())
	}
	b.ReportMetric(float64((processorTime(b)-begun).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkSetPools measures the change of the pod-cidr of one of 1,000 nodes, while 20
// namespaces have a block on each node.
func BenchmarkSetPools(b *testing.B) {
	pools := make([]dhcppool.Pool, 1000)
	var pods []*coe.Pod
	for i := range pools {
		node := fmt.Sprintf("192.168.%d.%d", i/250, i%250+1)
		pools[i] = pool(node, fmt.Sprintf("10.%d.%d.0/24", i/250, i%250), "", "", "")
		for ns := range 20 {
			pods = append(pods, newPod(fmt.Sprint("p", i, "-", ns), node, in(fmt.Sprint("ns", ns))))
		}
	}
	w := newWorld(b, pools...)
	w.put(pods...)
	w.sync()
	other := pools[7]
	other.DNS = append(other.DNS, addr("10.0.0.10"))
	for _, c := range []struct {
		name  string
		pools [2]dhcppool.Pool
	}{{"same", [2]dhcppool.Pool{pools[7], pools[7]}}, {"changed", [2]dhcppool.Pool{pools[7], other}}} {
		b.Run(c.name, func(b *testing.B) {
			i, begun := 0, processorTime(b)
			for b.Loop() {
				pools[7] = c.pools[i%2]
				w.assigner.SetPools(pools)
				i++
			}
			b.ReportMetric(float64((processorTime(b)-begun).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
