package state_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

var node1 = netip.MustParseAddr("192.168.33.12")

// recorder records the changes that a Store reports.
type recorder struct{ all []state.Changed }

func (r *recorder) changed(c state.Changed) { r.all = append(r.all, c) }

func (r *recorder) take() []state.Changed {
	all := r.all
	r.all = nil
	return all
}

func TestStoreTellsWhatChanged(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.RESTCONF)
	pod := &coe.Pod{UID: "u1", Name: "p", Namespace: "a", HostIP: node1}
	s.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, pod) })
	require.Equal(t, []state.Changed{{Namespaces: []string{"a"}}}, r.take())
	require.Equal(t, []*coe.Pod{pod}, s.View("a").Pods)

	moved := *pod
	moved.Namespace = "b"
	s.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, &moved) })
	require.Equal(t, []state.Changed{{Namespaces: []string{"a", "b"}}}, r.take(), "the old namespace and the new")
	require.Empty(t, s.View("a").Pods)
	require.Equal(t, []string{"b"}, s.Namespaces(), "an empty namespace is deleted")

	s.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n1", HostName: "node1", InternalIP: node1})
	})
	require.Equal(t, []state.Changed{{Namespaces: []string{"b"}, Cluster: true}}, r.take(), "the namespaces with a pod on the node")
	require.Equal(t, "node1", s.View("b").Nodes[node1].HostName)

	s.Update(func(tx *state.Tx) { tx.PutLease(&coe.Lease{PodUID: "u1", InterfaceUID: "u1", Namespace: "b"}) })
	require.Equal(t, []state.Changed{{Leased: []string{"u1"}}}, r.take(), "a lease does not mark its namespace as changed")
	require.Len(t, s.View("b").Leases, 1)
	s.Update(func(tx *state.Tx) {
		tx.PutBlock("b", &coe.Block{ELAN: "192.0.2.1:b", Prefix: netip.MustParsePrefix("10.0.0.0/29")})
	})
	require.Len(t, s.Cluster().Blocks, 1)
	s.Update(func(tx *state.Tx) { tx.DeleteBlock("b", "192.0.2.1:b", netip.MustParsePrefix("10.0.0.0/29")) })
	require.Equal(t, []state.Changed{{Blocks: true}, {Blocks: true}}, r.take())

	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, "u1") })
	require.Equal(t, []state.Changed{{Namespaces: []string{"b"}}}, r.take())
	require.Equal(t, []string{"b"}, s.Namespaces(), "the lease is still there")
	s.Update(func(tx *state.Tx) {
		tx.PutLease(&coe.Lease{PodUID: "u0", InterfaceUID: "u0", Namespace: "b"})
		tx.DeleteLease("b", coe.LeaseKey{PodUID: "u1", InterfaceUID: "u1"})
		tx.DeleteLease("b", coe.LeaseKey{PodUID: "u0", InterfaceUID: "u0"})
	})
	require.Equal(t, []state.Changed{{Leased: []string{"u0", "u1"}}}, r.take())
	require.Empty(t, s.Namespaces())
}

// TestStoreTellsThatNodesMoved: a node that is new, gone, renamed or in another zone changes the namespaces
// with services that depend on where clients are. Further addresses of a node mark those with endpoints there.
func TestStoreTellsThatNodesMoved(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	node, second := &coe.Node{UID: "n1", HostName: "node1", InternalIP: node1, Zone: "a"}, netip.MustParseAddr("2001:db8::7")
	update := func(change func(tx *state.Tx)) []state.Changed {
		s.Update(change)
		return r.take()
	}
	put := func(change func(n *coe.Node)) []state.Changed {
		next := *node
		change(&next)
		return update(func(tx *state.Tx) { tx.PutNode(coe.Kubernetes, &next) })
	}
	local := &coe.Service{UID: "s1", Namespace: "local", InternalLocal: true}
	hints := &coe.Endpoints{UID: "e1", Namespace: "hints", Places: []coe.Place{{}, {Hints: &coe.Hints{Zones: []string{"a"}}}}}
	update(func(tx *state.Tx) {
		tx.PutService(coe.Kubernetes, local)
		tx.PutEndpoints(coe.Kubernetes, hints)
		tx.PutService(coe.Kubernetes, &coe.Service{UID: "s2", Namespace: "plain"})
		tx.PutEndpoints(coe.Kubernetes, &coe.Endpoints{UID: "e2", Namespace: "plain", Places: []coe.Place{{Node: "node1"}}})
	})
	both := []state.Changed{{Namespaces: []string{"hints", "local"}, Cluster: true}}
	require.Equal(t, both, put(func(*coe.Node) {}), "new")
	require.Equal(t, []state.Changed{{Cluster: true}}, put(func(n *coe.Node) { n.ExternalIP = node1 }))
	require.Equal(t, both, put(func(n *coe.Node) { n.Zone = "b" }))
	update(func(tx *state.Tx) {
		tx.PutEndpoints(coe.Kubernetes, &coe.Endpoints{UID: "e3", Namespace: "circle", Addresses: []netip.Addr{second}})
	})
	circle := []state.Changed{{Namespaces: []string{"circle"}, Cluster: true}}
	require.Equal(t, circle, put(func(n *coe.Node) { n.SecondIP, n.Zone = second, "b" }))
	require.Equal(t, circle, put(func(n *coe.Node) { n.Zone = "b" }))
	require.Equal(t, both, put(func(n *coe.Node) { n.HostName, n.Zone = "other", "b" }))
	update(func(tx *state.Tx) { tx.DeleteService(coe.Kubernetes, "s1") })
	require.Equal(t, []state.Changed{{Namespaces: []string{"hints"}, Cluster: true}}, put(func(n *coe.Node) { n.Zone = "c" }))
	update(func(tx *state.Tx) { tx.PutEndpoints(coe.Kubernetes, &coe.Endpoints{UID: "e1", Namespace: "hints"}) })
	require.Equal(t, []state.Changed{{Cluster: true}}, update(func(tx *state.Tx) { tx.DeleteNode(coe.Kubernetes, "n1") }))
}

// A pod with host ports depends on the addresses of its node, so the numbers of nodes and their range mark it.
func TestStoreMarksHostPorts(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	pod := &coe.Pod{UID: "u1", Namespace: "hosting", HostPorts: []uint16{80}}
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.Kubernetes, pod)
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "u2", Namespace: "plain"})
	})
	r.take()
	networks := func(prefix string) *coe.Networks {
		return &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix(prefix)}, HostPorts: []coe.PortRange{{First: 80, Last: 80}}}
	}
	for i, c := range []struct {
		change func(*state.Tx)
		marks  bool
	}{
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.96.0.0/16")) }, false},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 1}) }, false},
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.96.0.0/29")) }, true}, // for one node
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 2}) }, true},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 1}) }, true},
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.96.0.0/16")) }, true},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 1}) }, false},
	} {
		s.Update(c.change)
		require.Equal(t, c.marks, len(r.take()) > 0, i)
	}
	require.Equal(t, uint32(1), s.View("hosting").Numbers[node1].Number)
	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "u1") })
	r.take()
	s.Update(func(tx *state.Tx) { tx.DeleteNodeFact(node1) })
	require.Empty(t, r.take())
}

// The ports of nodes in isolated namespaces depend on the numbers of the nodes, and on their range, if nodes lead pods to services.
func TestStoreMarksIsolatedNodes(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	s.Update(func(tx *state.Tx) {
		tx.PutELAN("there", &coe.ELANFact{Name: node1.String() + ":there"})
		tx.PutELAN("elsewhere", &coe.ELANFact{Name: "192.0.2.200:elsewhere"})
	})
	r.take()
	networks := func(prefix string, balance bool) *coe.Networks {
		return &coe.Networks{Nodes: nodenet.Range{Prefix: netip.MustParsePrefix(prefix)}, Isolated: true, NodesBalance: balance}
	}
	all := []string{"elsewhere", "there"}
	for i, c := range []struct {
		change func(*state.Tx)
		marks  []string
	}{
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.96.0.0/16", false)) }, nil},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 1}) }, nil},
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.96.0.0/16", true)) }, all},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 1, Owner: "n1"}) }, nil},
		{func(tx *state.Tx) { tx.PutNodeFact(&coe.NodeFact{Node: node1, Number: 2}) }, all[1:]},
		{func(tx *state.Tx) { tx.SetNetworks(networks("100.97.0.0/16", true)) }, all},
		{func(tx *state.Tx) { tx.DeleteNodeFact(node1) }, all[1:]},
	} {
		s.Update(c.change)
		var marked []string
		for _, changed := range r.take() {
			marked = append(marked, changed.Namespaces...)
		}
		require.ElementsMatch(t, c.marks, marked, i)
	}
}

// A source can be complete before the change that completed it is notified.
func TestStoreNotified(t *testing.T) {
	var s *state.Store
	notified := true
	s = state.NewStore(func(state.Changed) {
		require.True(t, s.Complete())
		notified = s.Notified()
	}, coe.Kubernetes)
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "u1", Namespace: "shop"})
		tx.SetComplete(coe.Kubernetes)
	})
	require.False(t, notified)
	require.True(t, s.Notified())
}

func TestStoreKnowsWhoBringsAddresses(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	x, y := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	pod := func(ns string, addrs ...netip.Addr) *coe.Pod {
		return &coe.Pod{UID: "u1", Namespace: ns, Interfaces: []coe.PodInterface{{UID: "u1", Addresses: addrs}}}
	}
	put := func(p *coe.Pod) []string {
		s.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, p) })
		return s.Requesting()
	}
	require.Empty(t, put(pod("a")))
	require.Equal(t, []string{"a"}, put(pod("a", x)))
	require.Empty(t, s.Requesting(), "once")
	s.Update(func(tx *state.Tx) {
		tx.PutLease(&coe.Lease{PodUID: "u1", InterfaceUID: "u1", Namespace: "a", Addresses: []coe.LeasedAddress{{Address: x}, {Address: y}}})
	})
	require.Empty(t, put(pod("a", x)), "its lease has it")
	require.Empty(t, put(pod("a", y, x)))
	require.Equal(t, []string{"a"}, put(pod("a", netip.MustParseAddr("10.0.0.3"))))
	require.Equal(t, []string{"b"}, put(pod("b", x)))
	host := pod("c", x)
	host.NoNetwork = true
	require.Empty(t, put(host), "the address of its node")
	s.Update(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, pod("d", x)) })
	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "u1") })
	require.Empty(t, s.Requesting(), "a deleted namespace is not returned")
}

func TestStoreComplete(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.RESTCONF, coe.Kubernetes)
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "u1", Namespace: "a"})
		tx.SetComplete(coe.RESTCONF)
	})
	require.False(t, s.Complete(), "one of two origins is complete")
	r.take()
	s.Update(func(tx *state.Tx) { tx.SetComplete(coe.Kubernetes) })
	require.True(t, s.Complete())
	require.Equal(t, []state.Changed{{Namespaces: []string{"a"}, Cluster: true}}, r.take(), "all namespaces are changed")
	s.Update(func(tx *state.Tx) { tx.SetComplete(coe.Kubernetes) })
	require.Empty(t, r.take(), "once")
}

func TestStoreLayers(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	said := &coe.Pod{UID: "u1", Name: "restconf", Namespace: "a"}
	seen := &coe.Pod{UID: "u1", Name: "kubernetes", Namespace: "b"}
	s.Update(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, seen) })
	s.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, said) })
	require.Equal(t, []*coe.Pod{seen}, s.View("b").Pods, "Kubernetes has precedence, regardless of the order")
	require.Empty(t, s.View("a").Pods)
	require.Equal(t, coe.Kubernetes, s.Origin("u1"))
	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "u1") })
	require.Equal(t, []*coe.Pod{said}, s.View("a").Pods, "the entity of the other origin applies again")
	require.Equal(t, coe.RESTCONF, s.Origin("u1"))
	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, "u1") })
	require.Empty(t, s.Origin("u1"))
}

func TestStoreNodesOfOneAddress(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	s.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n2", HostName: "second", InternalIP: node1})
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n1", HostName: "first", ExternalIP: node1})
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n0", HostName: "nowhere"})
	})
	require.Len(t, s.Nodes(), 1)
	require.Equal(t, "first", s.Nodes()[node1].HostName)
	s.Update(func(tx *state.Tx) {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "n9", HostName: "seen", InternalIP: node1})
	})
	require.Equal(t, "seen", s.Nodes()[node1].HostName)
}

func TestViewIsASnapshot(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF)
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "u1", Namespace: "a"})
		tx.PutBlock("a", &coe.Block{ELAN: "e", Prefix: netip.MustParsePrefix("10.0.0.0/29")})
		tx.PutELAN("a", &coe.ELANFact{Name: "e", VNI: 1})
	})
	v := s.View("a")
	s.Update(func(tx *state.Tx) {
		tx.DeletePod(coe.RESTCONF, "u1")
		tx.DeleteBlock("a", "e", netip.MustParsePrefix("10.0.0.0/29"))
		tx.DeleteELAN("a", "e")
	})
	require.Len(t, v.Pods, 1)
	require.Len(t, v.Blocks, 1)
	require.Len(t, v.ELANs, 1)
	require.Empty(t, s.Namespaces())
}

// TestViewShowsEveryChange makes every kind of change between two Views: only the second shows it.
func TestViewShowsEveryChange(t *testing.T) {
	prefix := netip.MustParsePrefix("10.0.0.0/29")
	key := coe.LeaseKey{PodUID: "u1", InterfaceUID: "i1"}
	for _, c := range []struct {
		name      string
		put, take func(*state.Tx)
		count     func(coe.View) int
	}{
		{
			"pod", func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "u1", Namespace: "a"}) },
			func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, "u1") }, func(v coe.View) int { return len(v.Pods) },
		},
		{
			"service", func(tx *state.Tx) { tx.PutService(coe.RESTCONF, &coe.Service{UID: "u1", Namespace: "a"}) },
			func(tx *state.Tx) { tx.DeleteService(coe.RESTCONF, "u1") }, func(v coe.View) int { return len(v.Services) },
		},
		{
			"endpoints", func(tx *state.Tx) { tx.PutEndpoints(coe.RESTCONF, &coe.Endpoints{UID: "u1", Namespace: "a"}) },
			func(tx *state.Tx) { tx.DeleteEndpoints(coe.RESTCONF, "u1") }, func(v coe.View) int { return len(v.Endpoints) },
		},
		{
			"lease", func(tx *state.Tx) { tx.PutLease(&coe.Lease{PodUID: "u1", InterfaceUID: "i1", Namespace: "a"}) },
			func(tx *state.Tx) { tx.DeleteLease("a", key) }, func(v coe.View) int { return len(v.Leases) },
		},
		{
			"block", func(tx *state.Tx) { tx.PutBlock("a", &coe.Block{ELAN: "e", Prefix: prefix}) },
			func(tx *state.Tx) { tx.DeleteBlock("a", "e", prefix) }, func(v coe.View) int { return len(v.Blocks) },
		},
		{
			"elan", func(tx *state.Tx) { tx.PutELAN("a", &coe.ELANFact{Name: "e"}) },
			func(tx *state.Tx) { tx.DeleteELAN("a", "e") }, func(v coe.View) int { return len(v.ELANs) },
		},
		{
			"service fact", func(tx *state.Tx) { tx.PutServiceFact(&coe.ServiceFact{UID: "u1", Namespace: "a"}) },
			func(tx *state.Tx) { tx.DeleteServiceFact("a", "u1") }, func(v coe.View) int { return len(v.ServiceFacts) },
		},
		{
			"vip", func(tx *state.Tx) { tx.PutVIP("a", coe.VIP{Address: prefix.Addr()}) },
			func(tx *state.Tx) { tx.DeleteVIP("a", coe.VIP{Address: prefix.Addr()}) }, func(v coe.View) int { return len(v.VIPs) },
		},
		{
			"refusal", func(tx *state.Tx) { tx.SetRefusals("a", map[coe.LeaseKey]coe.Refusal{key: {}}, nil) },
			func(tx *state.Tx) { tx.SetRefusals("a", nil, nil) }, func(v coe.View) int { return len(v.Refusals) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := state.NewStore(nil, coe.RESTCONF)
			s.Update(func(tx *state.Tx) { tx.PutVPN(&coe.VPNFact{Name: "a", Namespace: "a"}) })
			before := s.View("a")
			s.Update(c.put)
			with := s.View("a")
			require.Equal(t, with, s.View("a"), "nothing has changed between")
			s.Update(c.take)
			require.Equal(t, []int{0, 1, 0}, []int{c.count(before), c.count(with), c.count(s.View("a"))})
		})
	}
}

// TestViewShowsPodsInOrder changes pods at random, few or many between two Views. Each View has the
// pods of its time in order, and keeps them.
func TestViewShowsPodsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s := state.NewStore(nil, coe.RESTCONF)
	pods := map[string]*coe.Pod{}
	all := func() []*coe.Pod {
		return slices.SortedFunc(maps.Values(pods), func(a, b *coe.Pod) int { return strings.Compare(a.UID, b.UID) })
	}
	var last coe.View
	for range 300 {
		before := all()
		for range 1 + r.IntN(1+r.IntN(20)) {
			p := &coe.Pod{UID: fmt.Sprintf("u%03d", r.IntN(200)), Namespace: "a"}
			if pods[p.UID] != nil && r.IntN(3) == 0 {
				delete(pods, p.UID)
				s.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, p.UID) })
				continue
			}
			pods[p.UID] = p
			s.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, p) })
		}
		requireSame(t, before, last.Pods)
		last = s.View("a")
		requireSame(t, all(), last.Pods)
	}
}

// requireSame requires identical pods, not only equal ones.
func requireSame(t *testing.T, want, got []*coe.Pod) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Same(t, want[i], got[i])
	}
}

func TestWaitRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := state.NewStore(nil, coe.RESTCONF)
		var reached atomic.Int64
		for _, revision := range []int64{0, 5, 5, 7} {
			go func() {
				if s.WaitRevision(t.Context(), revision) == nil {
					reached.Add(1)
				}
			}()
		}
		advance := func(revision int64) int64 {
			s.Update(func(tx *state.Tx) { tx.SetRevision(revision) })
			synctest.Wait()
			return reached.Load()
		}
		require.EqualValues(t, 1, advance(4))
		require.EqualValues(t, 3, advance(6))
		require.EqualValues(t, 4, advance(7))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.WaitRevision(ctx, 8), context.Canceled)
	})
}
