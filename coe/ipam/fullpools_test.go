package ipam_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

// TestNearlyFull: a pool is a problem before its pods get no address, until pods are gone or there is another pool.
func TestNearlyFull(t *testing.T) {
	small := pool("default", "10.0.0.0/26", "", "", "")
	w := newWorld(t, small, pool("10.0.0.9:whole", "10.0.1.0/28", "", "", ""), pool(coe.ServicePool, "10.0.2.0/30", "", "", ""))
	reasons := func() (names []string) {
		for _, p := range w.store.Cluster().AddressProblems {
			require.Equal(t, coe.PoolNearlyFull, p.Reason)
			names = append(names, p.Name)
		}
		return names
	}
	var pods []*coe.Pod
	for n := range 7 { // 7 of 8 blocks
		pods = append(pods, newPod(fmt.Sprint("p", n), "10.0.0.9", in(fmt.Sprint("ns", n))))
		w.put(pods[n])
	}
	for n := range 11 { // 11 of 13 addresses
		w.put(newPod(fmt.Sprint("w", n), "10.0.0.9", in("whole")))
	}
	w.sync()
	require.Empty(t, reasons())
	last, another := newPod("last", "10.0.0.9", in("last")), newPod("w", "10.0.0.9", in("whole"))
	w.put(last, another, newPod("w11", "10.0.0.9", in("whole")))
	w.sync()
	require.Equal(t, []string{"default", "10.0.0.9:whole"}, reasons())
	require.NotEmpty(t, w.address(last))

	w.setPools(small, pool("default", "10.0.3.0/26", "", "", ""), pool("10.0.0.9:whole", "10.0.1.0/28", "", "", ""))
	w.mark("last")
	w.sync()
	require.Equal(t, []string{"10.0.0.9:whole"}, reasons(), "another pool of the network")
}

// TestNearlyFullCountsFreeAddresses: blocks are large, so at half use one node has the whole pool in blocks, and most of its last
// block is free.
func TestNearlyFullCountsFreeAddresses(t *testing.T) {
	w := newWorld(t)
	w.nodeBlocks = true
	w.restart()
	w.complete()
	w.setPools(pool("default", "10.0.0.0/24", "", "", ""))
	isFull := func() bool { return len(w.store.Cluster().AddressProblems) > 0 }
	var pods []*coe.Pod
	put := func(count int) {
		for len(pods) < count {
			pods = append(pods, newPod(fmt.Sprint("p", len(pods)), "10.0.0.9"))
			w.put(pods[len(pods)-1])
		}
		w.sync()
	}
	put(126)
	require.False(t, isFull(), "124 more pods get an address")
	put(215)
	require.False(t, isFull())
	put(216)
	require.True(t, isFull())
	for range 34 {
		put(len(pods) + 1)
		require.NotEmpty(t, w.address(pods[len(pods)-1]))
	}
}

// TestNearlyFullStays: the problem does not come and go with one block.
func TestNearlyFullStays(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/25", "", "", "")) // 16 blocks
	isFull := func() bool { return len(w.store.Cluster().AddressProblems) > 0 }
	for n := range 14 {
		w.put(newPod(fmt.Sprint("p", n), "10.0.0.9", in(fmt.Sprint("ns", n))))
	}
	w.sync()
	require.False(t, isFull(), "14 of 16 blocks")
	for range 3 {
		for n := 14; n < 16; n++ {
			w.put(newPod(fmt.Sprint("p", n), "10.0.0.9", in(fmt.Sprint("ns", n))))
		}
		w.sync()
		require.True(t, isFull(), "16 of 16 blocks")
		w.remove(newPod("p15", "10.0.0.9", in("ns15")), newPod("p14", "10.0.0.9", in("ns14")))
		w.sync()
		w.wait(time.Minute)
		require.True(t, isFull(), "14 of 16 blocks")
	}
	w.remove(newPod("p13", "10.0.0.9", in("ns13")))
	w.sync()
	w.wait(time.Minute)
	require.False(t, isFull(), "13 of 16 blocks")
}
