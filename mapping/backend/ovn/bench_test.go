package ovn_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/nbcopy"
	testdb "github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// bulk returns the objects of many pods, spread over nodes and namespaces.
func bulk(pods, nodes, namespaces int) []netvirt.Object {
	objects := []netvirt.Object{netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}}
	for n := range pods {
		node, ns := n%nodes, n/nodes%namespaces
		namespace := fmt.Sprintf("namespace-%d", ns)
		elan := netvirt.ELANName(netip.AddrFrom4([4]byte{192, 168, byte(node / 250), byte(10 + node%250)}), namespace)
		name, uid := fmt.Sprintf("%s:pod-%d", namespace, n), fmt.Sprintf("1f0e1ac6-0000-4000-8000-%012d", n)
		subnet := netvirt.Subnet{
			ELAN: elan, VPN: namespace, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(ns), byte(node), 0}), 24),
			Gateway: netip.AddrFrom4([4]byte{10, byte(ns), byte(node), 1}), LeaseTime: 3600,
		}
		address := netip.AddrFrom4([4]byte{10, byte(ns), byte(node), byte(2 + n/nodes/namespaces)})
		mac := fmt.Sprintf("0a:58:0a:%02x:%02x:%02x", ns, node, 2+n/nodes/namespaces)
		objects = append(objects,
			netvirt.VPNInstance{Name: namespace, Namespace: namespace, RouteDistinguisher: fmt.Sprintf("100:%d", 2+ns), Transit: netvirt.CommonRouteTarget},
			netvirt.ELANInstance{Name: elan, SegmentType: netvirt.SegmentVXLAN, SegmentationID: uint32(70000 + 100*ns + node)},
			subnet,
			netvirt.Interface{
				Name: name, Namespace: namespace, Pod: fmt.Sprintf("pod-%d", n), PodUID: uid, UID: uid, ParentInterface: netvirt.PortName(name, uid),
			},
			netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan, Chassis: fmt.Sprintf("node-%d", node)},
			netvirt.MACEntry{Interface: name, Namespace: namespace, MAC: mac, Address: address},
			netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: namespace},
			netvirt.Adjacency{
				Interface: name, Namespace: namespace, Address: address, MAC: mac, ELAN: elan, Network: subnet.Prefix, Gateway: subnet.Gateway,
			},
		)
	}
	return objects
}

// BenchmarkWrite writes 5,000 pods on 10 nodes in 20 namespaces. It compares the time with
// libovsdb writing the same rows in transactions of 100: "ratio" is libovsdb's time divided
// by the backend's.
func BenchmarkWrite(b *testing.B) {
	model := netvirt.Model{}
	model.Add(bulk(5000, 10, 20)...)
	changes := netvirt.Diff(netvirt.Model{}, model)
	var ours, bare time.Duration
	for b.Loop() {
		server := testdb.Start(b)
		backend := open(b, server, byELAN)
		_, err := backend.Read(b.Context())
		require.NoError(b, err)
		begin := time.Now()
		require.NoError(b, backend.Write(b.Context(), changes))
		ours += time.Since(begin)
		_, took, err := nbcopy.Copy(b.Context(), server.Endpoint(), testdb.Start(b).Endpoint())
		require.NoError(b, err)
		bare += took
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/write")
	b.ReportMetric(bare.Seconds()/float64(b.N), "s/bare")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
}

// BenchmarkRead reads 5,000 pods.
func BenchmarkRead(b *testing.B) {
	backend := open(b, testdb.Start(b), byELAN)
	model := netvirt.Model{}
	model.Add(bulk(5000, 10, 20)...)
	require.NoError(b, backend.Write(b.Context(), netvirt.Diff(netvirt.Model{}, model)))
	for b.Loop() {
		have, err := backend.Read(b.Context())
		require.NoError(b, err)
		require.Len(b, have, len(model))
	}
}

// services returns the objects of services with two endpoints each, spread over the
// namespaces of bulk.
func services(count, namespaces int) []netvirt.Object {
	var objects []netvirt.Object
	for n := range count {
		namespace, uid := fmt.Sprintf("namespace-%d", n%namespaces), fmt.Sprintf("2f0e1ac6-0000-4000-8000-%012d", n)
		endpoint := func(last byte) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n % namespaces), byte(n), last}), 8080)
		}
		objects = append(objects, netvirt.Service{UID: uid, Namespace: namespace, Name: fmt.Sprintf("service-%d", n)}, netvirt.ServiceVIP{
			Service: uid, Namespace: namespace, Protocol: netvirt.TCP,
			VIP:       netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), 80),
			Endpoints: netvirt.NewEndpointList(endpoint(2), endpoint(3)),
		})
	}
	return objects
}

// BenchmarkReadLarge reads 50,000 pods on 1,000 nodes in 20 namespaces, and 5,000
// services. "MiB-live" is the memory in use afterwards: the backend's, and a few MiB of
// the test.
func BenchmarkReadLarge(b *testing.B) {
	server := testdb.Start(b)
	count := 0
	func() {
		writer := open(b, server, byELAN, func(c *ovn.Config) { c.ReadTimeout = time.Minute })
		defer writer.Close()
		model := netvirt.Model{}
		model.Add(bulk(50_000, 1000, 20)...)
		model.Add(services(5000, 20)...)
		require.NoError(b, writer.Write(b.Context(), netvirt.Diff(netvirt.Model{}, model)))
		count = len(model)
	}()
	backend := open(b, server, byELAN)
	for b.Loop() {
		have, err := backend.Read(b.Context())
		require.NoError(b, err)
		require.Len(b, have, count)
	}
	b.ReportMetric(float64(live())/(1<<20), "MiB-live")
	runtime.KeepAlive(backend)
}

// live returns the heap memory in use, in bytes.
func live() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkWriteOne writes a pod to a database that has 5,000, and deletes it.
func BenchmarkWriteOne(b *testing.B) {
	backend := open(b, testdb.Start(b), byELAN)
	objects := bulk(5001, 10, 20)
	model := netvirt.Model{}
	model.Add(objects...)
	require.NoError(b, backend.Write(b.Context(), netvirt.Diff(netvirt.Model{}, model)))
	without := netvirt.Model{}
	without.Add(objects...)
	for _, o := range objects[len(objects)-5:] {
		delete(without, o.Key())
	}
	remove, create := netvirt.Diff(model, without), netvirt.Diff(without, model)
	for b.Loop() {
		require.NoError(b, backend.Write(b.Context(), remove))
		require.NoError(b, backend.Write(b.Context(), create))
	}
}
