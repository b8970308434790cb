package ipam_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/coe/vips"
)

// newVIPWorld returns a world of both origins that records claims of service addresses. Services
// of Kubernetes can have external addresses in 192.0.2.0/24.
func newVIPWorld(t *testing.T) *world {
	w := &world{TB: t, journal: newJournal(), vips: newJournal(), origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes}}
	w.restart()
	w.complete()
	return w
}

func newService(namespace, uid string, change ...func(*coe.Service)) *coe.Service {
	s := &coe.Service{UID: uid, Name: uid, Namespace: namespace, Ports: []coe.ServicePort{{Protocol: "tcp", Port: 80}}}
	for _, c := range change {
		c(s)
	}
	return s
}

func at(cluster string) func(*coe.Service) {
	return func(s *coe.Service) { s.ClusterIPs = []netip.Addr{addr(cluster)} }
}

func outside(external ...string) func(*coe.Service) {
	return func(s *coe.Service) {
		for _, a := range external {
			s.ExternalIPs = append(s.ExternalIPs, addr(a))
		}
	}
}

// balanced gives a service an address of a load balancer.
func balanced(address string) func(*coe.Service) {
	return func(s *coe.Service) {
		s.ExternalIPs, s.LoadBalancerIPs = append(s.ExternalIPs, addr(address)), append(s.LoadBalancerIPs, addr(address))
	}
}

func onPort(protocol string, port uint16) func(*coe.Service) {
	return func(s *coe.Service) { s.Ports = []coe.ServicePort{{Protocol: protocol, Port: port}} }
}

func everyPort(s *coe.Service) { s.Ports = nil }

func (w *world) putServices(services ...*coe.Service) {
	w.store.Update(func(tx *state.Tx) {
		for _, s := range services {
			tx.PutService(coe.Kubernetes, s)
		}
	})
	w.sync()
}

func (w *world) removeServices(uids ...string) {
	w.store.Update(func(tx *state.Tx) {
		for _, uid := range uids {
			tx.DeleteService(coe.Kubernetes, uid)
		}
	})
	w.sync()
}

// holds returns the VIPs of a namespace as text, sorted.
func (w *world) holds(namespace string) (all []string) {
	for v := range w.store.View(namespace).VIPs {
		all = append(all, fmt.Sprint(v.Address, " ", v.Protocol, v.Port))
	}
	slices.Sort(all)
	return all
}

func (w *world) whyNot(namespace, uid string) coe.Reason {
	return w.store.View(namespace).ServiceRefusals[uid].Reason
}

// TestVIPs has pairs of services in two namespaces that claim addresses one after the other, and
// the resulting owners.
func TestVIPs(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *coe.Service // of namespaces a and b
		a, b          []string
		reasonA       coe.Reason
		reasonB       coe.Reason
	}{
		"two cluster addresses": {
			newService("a", "z", at("10.96.0.1")), newService("b", "y", at("10.96.0.1")),
			[]string{"10.96.0.1 0"}, nil, "", coe.AddressTaken,
		},
		"two external addresses": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1")),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"two ports of one external address": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1"), onPort("tcp", 81)),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0", "192.0.2.1 tcp81"}, "", "",
		},
		"two protocols of one external address": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1"), onPort("udp", 80)),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0", "192.0.2.1 udp80"}, "", "",
		},
		"every port of an external address after one": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1"), everyPort),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"one port of an external address after every one": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"), everyPort), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1")),
			[]string{"10.96.0.1 0", "192.0.2.1 0"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"a cluster address that is external to another": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("192.0.2.1")),
			[]string{"10.96.0.1 0"}, []string{"192.0.2.1 0"}, coe.AddressTaken, "",
		},
		"a cluster address all of which is external to another": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"), everyPort), newService("b", "y", at("192.0.2.1")),
			[]string{"10.96.0.1 0"}, []string{"192.0.2.1 0"}, coe.AddressTaken, "",
		},
		"an external address that is another's cluster address": {
			newService("a", "z", at("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1")),
			[]string{"192.0.2.1 0"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"a load balancer's address that another just names": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")),
			[]string{"10.96.0.1 0"}, []string{"10.96.0.2 0", "192.0.2.1 tcp80"}, coe.AddressTaken, "",
		},
		"another port of a load balancer's address": {
			newService("a", "z", at("10.96.0.1"), balanced("192.0.2.1")), newService("b", "y", at("10.96.0.2"), outside("192.0.2.1"), onPort("udp", 53)),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"every port of a load balancer's address, named before": {
			newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"), everyPort), newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")),
			[]string{"10.96.0.1 0"}, []string{"10.96.0.2 0", "192.0.2.1 tcp80"}, coe.AddressTaken, "",
		},
		"two ports of a load balancer's address": {
			newService("a", "z", at("10.96.0.1"), balanced("192.0.2.1")), newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1"), onPort("tcp", 81)),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0", "192.0.2.1 tcp81"}, "", "",
		},
		"one port of a load balancer's address twice": {
			newService("a", "z", at("10.96.0.1"), balanced("192.0.2.1")), newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")),
			[]string{"10.96.0.1 0", "192.0.2.1 tcp80"}, []string{"10.96.0.2 0"}, "", coe.AddressTaken,
		},
		"an address of no list": {
			newService("a", "z", at("10.96.0.1")), newService("b", "y", at("10.96.0.2"), outside("8.8.8.8")),
			[]string{"10.96.0.1 0"}, []string{"10.96.0.2 0"}, "", coe.NotAllowed,
		},
		"the server of credentials": {
			newService("a", "z", at("10.96.0.1")), newService("b", "y", at("10.96.0.2"), outside("169.254.169.254")),
			[]string{"10.96.0.1 0"}, []string{"10.96.0.2 0"}, "", coe.AddressInvalid,
		},
		"loopback as cluster address": {
			newService("a", "z", at("10.96.0.1")), newService("b", "y", at("127.0.0.1")),
			[]string{"10.96.0.1 0"}, nil, "", coe.AddressInvalid,
		},
		"own external address": {
			newService("a", "z", at("192.0.2.1"), outside("192.0.2.1")), newService("b", "y", at("10.96.0.2")),
			[]string{"192.0.2.1 0"}, []string{"10.96.0.2 0"}, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVIPWorld(t)
			w.putServices(c.first)
			w.putServices(c.second)
			check := func(w *world) {
				require.Equal(t, c.a, w.holds("a"))
				require.Equal(t, c.b, w.holds("b"))
				require.Equal(t, c.reasonA, w.whyNot("a", "z"))
				require.Equal(t, c.reasonB, w.whyNot("b", "y"))
			}
			check(w)
			w.restart() // "y" is before "z" then
			require.Equal(t, c.a, w.holds("a"), "it is the same after a restart")
			w.putServices(c.second, c.first)
			w.complete()
			w.sync()
			check(w)

			standby := state.NewStore(nil, coe.RESTCONF)
			require.NoError(t, vips.NewFacts(standby).Apply(true, maps.Clone(w.vips.records), nil))
			require.True(t, maps.Equal(w.store.View("b").VIPs, standby.View("b").VIPs))

			winner, loser, reason := "z", "b", c.reasonB
			if c.reasonA != "" {
				winner, loser, reason = "y", "a", c.reasonA
			}
			w.removeServices(winner)
			if reason == coe.AddressTaken {
				require.Empty(t, w.store.View(loser).ServiceRefusals, "it heals")
			}
			w.removeServices("y", "z")
			require.Empty(t, w.vips.records)
		})
	}
}

// TestVIPsOfNodes: a service loses an external address if a node or a pool has the address, and
// gets it again afterwards.
func TestVIPsOfNodes(t *testing.T) {
	w := newVIPWorld(t)
	w.putServices(newService("a", "s", at("10.96.0.1"), outside("192.0.2.1")))
	both := []string{"10.96.0.1 0", "192.0.2.1 tcp80"}
	require.Equal(t, both, w.holds("a"))

	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "n", HostName: "node-9", InternalIP: addr("10.0.0.9"), ExternalIP: addr("192.0.2.1")})
	})
	w.setPools()
	w.sync()
	require.Equal(t, both[:1], w.holds("a"))
	require.Contains(t, w.store.View("a").ServiceRefusals["s"].Message, "node-9")
	w.store.Update(func(tx *state.Tx) { tx.DeleteNode(coe.Kubernetes, "n") })
	w.setPools()
	w.sync()
	require.Equal(t, both, w.holds("a"))

	w.setPools(pool("default", "192.0.2.0/28", "", "", ""))
	w.sync()
	require.Equal(t, both[:1], w.holds("a"))
	w.setPools()
	w.sync()
	require.Equal(t, both, w.holds("a"))
}

// TestVIPsOfClients: a RESTCONF client can give a service any external address, except the address
// of a node. No list must allow it.
func TestVIPsOfClients(t *testing.T) {
	w := newVIPWorld(t)
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n", InternalIP: addr("10.0.0.9")})
		tx.PutService(coe.RESTCONF, newService("a", "s", at("10.96.0.1"), outside("172.30.1.9", "10.0.0.9")))
	})
	w.setPools()
	w.sync()
	require.Equal(t, []string{"10.96.0.1 0", "172.30.1.9 tcp80"}, w.holds("a"))
	require.Equal(t, coe.AddressTaken, w.whyNot("a", "s"))
}

// TestDamagedVIPs: a record cannot be read, has the key of another one, or conflicts with another
// one. The service claims its address again, and the bridge starts.
func TestDamagedVIPs(t *testing.T) {
	a := newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"))
	b := newService("b", "y", at("10.96.0.2"), outside("192.0.2.2"))
	for name, damage := range map[string]func(records map[string][]byte){
		"removed":     func(r map[string][]byte) { delete(r, "10.96.0.1") },
		"truncated":   func(r map[string][]byte) { r["10.96.0.1"] = r["10.96.0.1"][:9] },
		"empty":       func(r map[string][]byte) { r["192.0.2.1/tcp/80"] = nil },
		"swapped":     func(r map[string][]byte) { r["10.96.0.1"], r["10.96.0.2"] = r["10.96.0.2"], r["10.96.0.1"] },
		"duplicated":  func(r map[string][]byte) { r["192.0.2.9/tcp/80"] = r["192.0.2.1/tcp/80"] },
		"a key alone": func(r map[string][]byte) { r["nothing"] = []byte("{}") },
		"contradicted": func(r map[string][]byte) {
			r["192.0.2.1"] = []byte(`{"address":"192.0.2.1","namespace":"b","external":true}`)
		},
		"a protocol without a port": func(r map[string][]byte) {
			r["10.96.0.1"] = []byte(`{"address":"10.96.0.1","protocol":"tcp","namespace":"a"}`)
		},
		"a port without a protocol": func(r map[string][]byte) {
			r["192.0.2.1//80"] = []byte(`{"address":"192.0.2.1","port":80,"namespace":"b","external":true}`)
		},
		"a port of a cluster address": func(r map[string][]byte) {
			delete(r, "10.96.0.1")
			r["10.96.0.1/tcp/80"] = []byte(`{"address":"10.96.0.1","protocol":"tcp","port":80,"namespace":"a"}`)
		},
		"none": func(r map[string][]byte) { clear(r) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newVIPWorld(t)
			w.putServices(a, b)
			damage(w.vips.records)
			w.restart()
			w.putServices(a, b)
			w.complete()
			w.sync()
			require.Equal(t, []string{"10.96.0.1 0", "192.0.2.1 tcp80"}, w.holds("a"))
			require.Equal(t, []string{"10.96.0.2 0", "192.0.2.2 tcp80"}, w.holds("b"))
			require.Len(t, w.vips.records, 4)
		})
	}
}

// TestVIPsOfAnOlderRelease: an older release, which does not record claims, may have been the
// leader before. So a new leader removes nothing from the backend until every service has claimed
// its addresses. This is also the case if a write fails meanwhile and the journal is loaded again.
func TestVIPsOfAnOlderRelease(t *testing.T) {
	w := newVIPWorld(t)
	clear(w.vips.records)
	w.restart()
	w.store.Update(func(tx *state.Tx) {
		tx.PutService(coe.Kubernetes, newService("a", "z", at("10.96.0.1")))
		tx.PutService(coe.Kubernetes, newService("b", "y", at("10.96.0.2")))
	})
	w.complete()
	for _, ns := range []string{"a", "b"} {
		require.False(t, w.assigner.InUseKnown(), "before %s has claimed", ns)
		w.vips.failIn = 1
		_, _, err := w.assigner.Sync(t.Context(), []string{ns})
		require.Error(t, err)
		_, _, err = w.assigner.Sync(t.Context(), []string{ns})
		require.NoError(t, err)
	}
	require.True(t, w.assigner.InUseKnown())
	w.restart()
	require.False(t, w.assigner.InUseKnown(), "an older release may have led meanwhile")
}

// TestBalancedAddresses: what a load balancer reports decides, also after a restart, while the other service stays
// as it is, and when the load balancer takes the address back. A namespace that names its own address loses nothing.
func TestBalancedAddresses(t *testing.T) {
	w := newVIPWorld(t)
	thief := newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"), onPort("tcp", 443))
	w.putServices(thief)
	w.putServices(newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")), newService("b", "x", at("10.96.0.3"), outside("192.0.2.1")))
	check := func() {
		t.Helper()
		require.Equal(t, []string{"10.96.0.1 0"}, w.holds("a"))
		require.Equal(t, []string{"10.96.0.2 0", "10.96.0.3 0", "192.0.2.1 tcp80"}, w.holds("b"))
		require.Equal(t, coe.AddressTaken, w.whyNot("a", "z"))
		require.Contains(t, w.store.View("a").ServiceRefusals["z"].Message, "a service of namespace b")
	}
	check()
	commits := len(w.vips.records)
	w.sync()
	require.Len(t, w.vips.records, commits)
	check()
	w.restart()
	w.putServices(thief, newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")), newService("b", "x", at("10.96.0.3"), outside("192.0.2.1")))
	w.complete()
	w.sync()
	check()

	w.putServices(newService("b", "y", at("10.96.0.2")), newService("b", "x", at("10.96.0.3"), outside("192.0.2.1")))
	w.sync()
	require.Empty(t, w.whyNot("a", "z"), "another port of the address")
	require.Contains(t, w.holds("a"), "192.0.2.1 tcp443")
	require.Contains(t, w.holds("b"), "192.0.2.1 tcp80", "b still names it")
}

// TestBalancedAddressInOneRound: a namespace that renews its claim of an address in the round in which
// another one gets it from its load balancer is refused too, and claims it again when it is free.
func TestBalancedAddressInOneRound(t *testing.T) {
	w := newVIPWorld(t)
	thief := newService("a", "z", at("10.96.0.1"), outside("192.0.2.1"))
	w.putServices(thief)
	w.restart()
	w.store.Update(func(tx *state.Tx) {
		tx.PutService(coe.Kubernetes, thief)
		tx.PutService(coe.Kubernetes, newService("b", "y", at("10.96.0.2"), balanced("192.0.2.1")))
	})
	w.complete()
	w.sync()
	require.Equal(t, []string{"10.96.0.1 0"}, w.holds("a"))
	require.Equal(t, coe.AddressTaken, w.whyNot("a", "z"))
	require.Contains(t, w.store.View("a").ServiceRefusals["z"].Message, "a service of namespace b")

	w.putServices(newService("b", "y", at("10.96.0.2")))
	w.sync()
	require.Equal(t, []string{"10.96.0.1 0", "192.0.2.1 tcp80"}, w.holds("a"))
}

// TestAnAddressMovesTwiceInOneRound: the claim of the first owner ends also if the second one loses the
// address in the same round.
func TestAnAddressMovesTwiceInOneRound(t *testing.T) {
	w := newVIPWorld(t)
	w.putServices(newService("a", "z", at("10.96.0.1"), outside("192.0.2.1")))
	w.putServices(
		newService("a", "z", at("10.96.0.1")),
		newService("b", "y", at("10.96.0.2"), outside("192.0.2.1")),
		newService("c", "x", at("10.96.0.3"), balanced("192.0.2.1")),
	)
	w.sync()
	require.Equal(t, []string{"10.96.0.1 0"}, w.holds("a"))
	require.Equal(t, []string{"10.96.0.2 0"}, w.holds("b"))
	require.Equal(t, []string{"10.96.0.3 0", "192.0.2.1 tcp80"}, w.holds("c"))
}
