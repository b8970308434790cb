package ipam_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

func TestServices(t *testing.T) {
	put := func(w *world, services ...*coe.Service) {
		w.store.Update(func(tx *state.Tx) {
			for _, s := range services {
				tx.PutService(coe.RESTCONF, s)
			}
		})
		w.sync()
	}
	w := newWorld(t)
	said := &coe.Service{UID: "s0", Namespace: "other", ClusterIPs: []netip.Addr{addr("10.96.0.2")}}
	a, b := &coe.Service{UID: "sa", Namespace: "default"}, &coe.Service{UID: "sb", Namespace: "other"}
	put(w, said, a, &coe.Service{UID: "headless", Namespace: "default", Headless: true})
	refusals := w.store.View("default").ServiceRefusals
	require.Len(t, refusals, 1)
	require.Equal(t, coe.NoClusterIP, refusals["sa"].Reason)

	w.setPools(pool("services", "10.96.0.0/29", "10.96.0.2", "10.96.0.3", ""))
	w.sync()
	require.Equal(t, "10.96.0.3", w.store.View("default").ServiceFacts["sa"].Address.String(), "an address that a source reported is not given to another service")
	put(w, b)
	require.Equal(t, coe.PoolExhausted, w.store.View("other").ServiceRefusals["sb"].Reason)
	require.Contains(t, w.store.View("other").ServiceRefusals["sb"].Message, `pool "services"`)

	taken := &coe.Service{UID: "st", Namespace: "other", ClusterIPs: []netip.Addr{addr("10.96.0.3")}}
	put(w, taken)
	require.Equal(t, coe.AddressTaken, w.store.View("other").ServiceRefusals["st"].Reason)
	w.store.Update(func(tx *state.Tx) { tx.DeleteService(coe.RESTCONF, "st") })

	w.store.Update(func(tx *state.Tx) { tx.DeleteService(coe.RESTCONF, "sa") })
	w.sync()
	require.NotZero(t, w.store.View("default").ServiceFacts["sa"].Released)
	put(w, a)
	require.Zero(t, w.store.View("default").ServiceFacts["sa"].Released)
	w.store.Update(func(tx *state.Tx) { tx.DeleteService(coe.RESTCONF, "sa") })
	w.sync()
	w.now = w.now.Add(30 * time.Second)
	w.mark("default")
	w.sync()
	require.Equal(t, "10.96.0.3", w.store.View("other").ServiceFacts["sb"].Address.String())

	w.store.Update(func(tx *state.Tx) { tx.DeleteService(coe.RESTCONF, "s0"); tx.DeleteService(coe.RESTCONF, "sb") })
	w.sync()
	w.wait(30 * time.Second)
	require.Empty(t, w.journal.records)
}

// TestServicePoolComesLater: a service gets the same address if it is created before or after the
// pool.
func TestServicePoolComesLater(t *testing.T) {
	w := newWorld(t)
	w.store.Update(func(tx *state.Tx) {
		tx.PutService(coe.RESTCONF, &coe.Service{UID: "s", Namespace: "default", ExternalIPs: []netip.Addr{addr("172.30.1.9")}})
	})
	w.sync()
	require.Empty(t, w.store.View("default").ServiceRefusals, "the service has an external address")
	w.setPools(pool("services", "10.96.0.0/24", "", "", ""))
	w.sync()
	require.Contains(t, w.store.View("default").ServiceFacts, "s")
}

// TestNoServiceGetsANodesAddress: services always share the address space of nodes. A pod of an
// isolated namespace can have the address of a node.
func TestNoServiceGetsANodesAddress(t *testing.T) {
	for name, isolated := range map[string]bool{"shared": false, "isolated": true} {
		t.Run(name, func(t *testing.T) {
			w := &world{TB: t, journal: newJournal(), isolated: isolated, now: time.Unix(1000, 0)}
			w.restart()
			w.complete()
			w.setPools(pool("services", "10.96.0.0/30", "10.96.0.1", "10.96.0.2", ""), pool("default", "192.168.10.0/30", "192.168.10.2", "192.168.10.2", "192.168.10.1"))
			p := newPod("p", "10.0.0.9")
			w.store.Update(func(tx *state.Tx) {
				tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n1", HostName: "one", InternalIP: addr("10.96.0.1")})
				tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n2", HostName: "two", InternalIP: addr("192.168.10.2")})
				tx.PutService(coe.RESTCONF, &coe.Service{UID: "s", Namespace: "default"})
				tx.PutPod(coe.RESTCONF, p)
			})
			w.sync()
			require.Equal(t, "10.96.0.2", w.store.View("default").ServiceFacts["s"].Address.String())
			var nodes []string
			for _, problem := range w.store.Cluster().AddressProblems {
				if problem.Kind != "node" {
					continue
				}
				nodes = append(nodes, problem.Name)
			}
			if isolated {
				require.Equal(t, "192.168.10.2", w.address(p))
				require.Equal(t, []string{"one"}, nodes)
				return
			}
			require.Equal(t, coe.PoolExhausted, w.refusal(p).Reason)
			require.Equal(t, []string{"one", "two"}, nodes)
		})
	}
}

// TestNodesAddressComesFree: a pod has the address of a node. When the pod is deleted and the
// address has rested, the address is held for the node.
func TestNodesAddressComesFree(t *testing.T) {
	w := newWorld(t, pool("default", "192.168.10.0/30", "192.168.10.2", "192.168.10.2", "192.168.10.1"))
	p, next := newPod("p", "10.0.0.9"), newPod("next", "10.0.0.9")
	w.put(p)
	w.sync()
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n", HostName: "one", InternalIP: addr("192.168.10.2")})
	})
	w.sync()
	require.Equal(t, "192.168.10.2", w.address(p))
	require.Contains(t, w.store.Cluster().AddressProblems[0].Message, "pod default/p")
	w.remove(p)
	w.put(next)
	w.sync()
	w.wait(31 * time.Second)
	require.Contains(t, w.store.Cluster().AddressProblems[0].Message, "no pod gets it")
	require.Equal(t, coe.PoolExhausted, w.refusal(next).Reason)
}
