package podservices_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/podservices"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// BenchmarkChange changes a port in 110 pods, of which each has the ports of 500 services with three endpoints. It also reports the memory
// of the process for each pod, and how long a new pod waits.
func BenchmarkChange(b *testing.B) {
	const pods, services = 110, 500
	endpoint := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}), 8080)
	}
	var ports []nodeports.Port
	for i := range services {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80)
		ports = append(ports, nodeports.Port{
			Address: at.Addr(), Protocol: "tcp", Number: 80, Service: at, Endpoints: []netip.AddrPort{endpoint(3 * i), endpoint(3*i + 1), endpoint(3*i + 2)},
		})
	}
	dir, before := b.TempDir(), heap()
	all := podservices.New(namespace.New(b), slog.New(slog.DiscardHandler))
	defer all.Close()
	all.Replace(ports, nil)
	all.Sync()
	var (
		paths []string
		in    []netns.NsHandle
	)
	for i := range pods {
		ns, path := namespace.New(b), filepath.Join(dir, strconv.Itoa(i))
		require.NoError(b, os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)), path))
		paths, in = append(paths, path), append(in, ns)
	}
	generation := func(ns netns.NsHandle) uint32 {
		g, err := porttables.Generation(ns)
		require.NoError(b, err)
		return g
	}
	begun := b.Elapsed()
	for _, path := range paths {
		all.Lead(b.Context(), path)
	}
	waited, occupied := (b.Elapsed()-begun)/pods, (heap()-before)/pods
	changed := ports[0]
	for i := 0; b.Loop(); i++ {
		changed.Endpoints = []netip.AddrPort{endpoint(i % 1000)}
		var was []uint32
		for _, ns := range in {
			was = append(was, generation(ns))
		}
		all.Put(changed)
		all.Sync()
		for i, ns := range in {
			for generation(ns) == was[i] {
				runtime.Gosched()
			}
		}
	}
	b.ReportMetric(float64(waited.Microseconds()), "µs/new-pod")
	b.ReportMetric(occupied, "KiB/pod")
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1024
}
