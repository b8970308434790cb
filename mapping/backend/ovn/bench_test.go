package ovn_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	testdb "github.com/coe-bridge/coe-bridge/test/ovsdb"
)

// bulk are the objects of many pods, on nodes and in namespaces, in turn.
func bulk(pods, nodes, namespaces int) []netvirt.Object {
	objects := []netvirt.Object{netvirt.Transit{RouteTarget: netvirt.CommonRouteTarget}}
	for n := range pods {
		node, ns := n%nodes, n/nodes%namespaces
		namespace := fmt.Sprintf("namespace-%d", ns)
		elan := netvirt.ELANName(netip.AddrFrom4([4]byte{192, 168, 0, byte(10 + node)}), namespace)
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

// BenchmarkWrite writes 5,000 pods of 10 nodes and 20 namespaces, and has a bare
// client write the same rows in transactions of 100. "ratio" is the bare
// client's time by the backend's.
func BenchmarkWrite(b *testing.B) {
	model := netvirt.Model{}
	model.Add(bulk(5000, 10, 20)...)
	changes := netvirt.Diff(netvirt.Model{}, model)
	var ours, bare time.Duration
	for b.Loop() {
		server := testdb.Start(b)
		backend := open(b, server)
		_, err := backend.Read(b.Context())
		require.NoError(b, err)
		begin := time.Now()
		require.NoError(b, backend.Write(b.Context(), changes))
		ours += time.Since(begin)
		bare += writeBare(b, server)
	}
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/write")
	b.ReportMetric(bare.Seconds()/float64(b.N), "s/bare")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "ratio")
}

// BenchmarkRead reads 5,000 pods.
func BenchmarkRead(b *testing.B) {
	backend := open(b, testdb.Start(b))
	model := netvirt.Model{}
	model.Add(bulk(5000, 10, 20)...)
	require.NoError(b, backend.Write(b.Context(), netvirt.Diff(netvirt.Model{}, model)))
	for b.Loop() {
		have, err := backend.Read(b.Context())
		require.NoError(b, err)
		require.Len(b, have, len(model))
	}
}

// BenchmarkWriteOne writes a pod to a database that has 5,000, and deletes it.
func BenchmarkWriteOne(b *testing.B) {
	backend := open(b, testdb.Start(b))
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

// writeBare copies the rows of a server into another, with the client's own
// means: parents first, then the ports in transactions of 100.
func writeBare(b *testing.B, from *testdb.Server) time.Duration {
	b.Helper()
	source, target := bareClient(b, from), bareClient(b, testdb.Start(b))
	_, err := source.MonitorAll(b.Context())
	require.NoError(b, err)
	var (
		switches []nb.LogicalSwitch
		routers  []nb.LogicalRouter
		ports    []nb.LogicalSwitchPort
		lrps     []nb.LogicalRouterPort
		routes   []nb.LogicalRouterStaticRoute
		options  []nb.DHCPOptions
		groups   []nb.LoadBalancerGroup
	)
	for _, list := range []any{&switches, &routers, &ports, &lrps, &routes, &options, &groups} {
		require.NoError(b, source.List(b.Context(), list))
	}
	slices.SortFunc(ports, func(a, b nb.LogicalSwitchPort) int { return strings.Compare(a.Name, b.Name) })
	parents := map[string]string{} // switch by port
	for _, s := range switches {
		for _, p := range s.Ports {
			parents[p] = s.UUID
		}
	}
	begin := time.Now()
	var ops []ovsdb.Operation
	create := func(m model.Model, uuid string) {
		created, err := target.Create(m)
		require.NoError(b, err)
		created[0].UUID, created[0].UUIDName = uuid, ""
		ops = append(ops, created...)
	}
	for i := range groups {
		create(&groups[i], groups[i].UUID)
	}
	for i := range options {
		create(&options[i], options[i].UUID)
	}
	for i := range lrps {
		create(&lrps[i], lrps[i].UUID)
	}
	for i := range routes {
		create(&routes[i], routes[i].UUID)
	}
	for i := range routers {
		create(&routers[i], routers[i].UUID)
	}
	for i := range switches {
		switches[i].Ports = nil
		create(&switches[i], switches[i].UUID)
	}
	commitBare(b, target, ops)
	for i := 0; i < len(ports); i += 100 {
		ops = nil
		members := map[string][]string{}
		for j := range ports[i:min(i+100, len(ports))] {
			p := &ports[i+j]
			create(p, p.UUID)
			members[parents[p.UUID]] = append(members[parents[p.UUID]], p.UUID)
		}
		for uuid, uuids := range members {
			s := &nb.LogicalSwitch{UUID: uuid}
			mutated, err := target.Where(s).Mutate(s, model.Mutation{Field: &s.Ports, Mutator: ovsdb.MutateOperationInsert, Value: uuids})
			require.NoError(b, err)
			ops = append(ops, mutated...)
		}
		commitBare(b, target, ops)
	}
	return time.Since(begin)
}

func bareClient(b *testing.B, server *testdb.Server) client.Client {
	b.Helper()
	dbModel, err := nb.FullDatabaseModel()
	require.NoError(b, err)
	c, err := client.NewOVSDBClient(dbModel, client.WithEndpoint(server.Endpoint()))
	require.NoError(b, err)
	require.NoError(b, c.Connect(b.Context()))
	b.Cleanup(c.Close)
	return c
}

func commitBare(b *testing.B, c client.Client, ops []ovsdb.Operation) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	results, err := c.Transact(ctx, ops...)
	require.NoError(b, err)
	_, err = ovsdb.CheckOperationResults(results, ops)
	require.NoError(b, err)
}
