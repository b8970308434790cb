package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
)

func TestPoolsAreLookedUpInOrder(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""), pool("special", "10.1.0.0/24", "", "", ""),
		pool(n1+":special", "10.2.0.0/24", "", "", "10.2.0.254"), pool(n1+":special", "fd00::/64", "", "", ""),
		pool(n1, "10.3.0.0/24", "", "", ""))
	of := func(uid, node, ns string) *coe.Pod { return newPod(uid, node, in(ns)) }
	a, b, c, d, e := of("a", n1, "special"), of("b", n2, "special"), of("c", n1, "default"), of("d", n1, "other"), of("e", n2, "other")
	w.put(a, b, c, d, e)
	w.sync()
	require.Equal(t, "10.2.0.1", w.address(a), "of the pool of the elan-instance")
	require.Equal(t, "fd00::2", w.lease(a).Addresses[1].Address.String())
	require.Equal(t, "fd00::/64", w.lease(a).Addresses[1].Network.String())
	require.Equal(t, "10.1.0.2", w.address(b), "the namespace's")
	require.Equal(t, "10.3.0.2", w.address(c), "of the pool of the node, for the namespace default too")
	require.Equal(t, "10.3.0.10", w.address(d), "the node's")
	require.Equal(t, "10.0.0.2", w.address(e), "of the default pool")
}

func TestPoolOfANodeServesManyNamespaces(t *testing.T) {
	w := newWorld(t, pool(n1, "10.11.2.0/24", "", "", ""), pool(n1, "fd00:2::/64", "", "", ""), pool(n2, "10.11.3.0/24", "", "", ""))
	var pods []*coe.Pod
	for i := range 30 {
		for j, node := range []string{n1, n1, n2} {
			pods = append(pods, newPod(fmt.Sprint("p", i, "-", j), node, in(fmt.Sprint("ns", i))))
		}
	}
	w.put(pods...)
	w.sync()
	blocks := map[netip.Prefix]string{}
	for _, p := range pods {
		l := w.lease(p)
		require.Len(t, l.Addresses, map[string]int{n1: 2, n2: 1}[p.HostIP.String()])
		for _, a := range l.Addresses {
			elan := blocks[a.Network]
			require.True(t, elan == "" || elan == p.HostIP.String()+p.Namespace, "%s is of one elan-instance", a.Network)
			blocks[a.Network] = p.HostIP.String() + p.Namespace
		}
	}
	require.Len(t, blocks, 90)
}

func TestPoolOfANodeIsExhaustedAndHeals(t *testing.T) {
	w := newWorld(t, pool(n1, "10.11.2.0/28", "", "", ""), pool("default", "10.12.0.0/16", "", "", ""))
	a, b, c := newPod("a", n1, in("ns1")), newPod("b", n1, in("ns2")), newPod("c", n1, in("ns3"))
	w.put(a, b)
	w.sync()
	w.put(c)
	w.sync()
	require.Equal(t, coe.Refusal{Reason: coe.PoolExhausted, Message: `pool "192.168.33.12" has no address left for elan-instance ` +
		`192.168.33.12:ns3 (10.11.2.0/28 has 13, given out in blocks for each node and namespace); widen allocate-from and allocate-to ` +
		`or post a further subnet, or a dhcp_allocation_pool with network-id "192.168.33.12:ns3", "ns3"`}, w.refusal(c))

	for name, further := range map[string][2]string{
		"a further subnet of the node": {n1, "10.11.4.0/24"},
		"a pool of the namespace":      {"ns3", "10.11.5.0/24"},
		"a pool of the elan-instance":  {n1 + ":ns3", "10.11.6.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			w.setPools(append(w.pools[:2:2], pool(further[0], further[1], "", "", ""))...)
			w.sync()
			require.True(t, netip.MustParsePrefix(further[1]).Contains(w.lease(c).Addresses[0].Address))
			w.setPools(w.pools[:2]...)
			w.remove(c)
			w.sync()
			w.wait(31 * time.Second)
			w.put(c)
			w.sync()
			require.Equal(t, coe.PoolExhausted, w.refusal(c).Reason)
		})
	}
	w.remove(b)
	w.sync()
	w.wait(31 * time.Second)
	require.Equal(t, "10.11.2.10", w.address(c), "healed by another namespace of the node")
}

// TestExhaustedAndEnlarged: refused pods get addresses when the pool is enlarged, for each kind of
// pool. The addresses of other pods do not change.
func TestExhaustedAndEnlarged(t *testing.T) {
	for _, network := range []string{"default", "ns", n1, n1 + ":ns"} {
		for name, pools := range map[string][2][3]string{
			"by its range":  {{"10.0.0.0/24", "10.0.0.2", "10.0.0.5"}, {"10.0.0.0/24", "10.0.0.2", "10.0.0.40"}},
			"by its subnet": {{"10.0.0.0/29", "", ""}, {"10.0.0.0/27", "", ""}},
		} {
			t.Run(network+" "+name, func(t *testing.T) {
				small, large := pools[0], pools[1]
				w := newWorld(t, pool(network, small[0], small[1], small[2], ""))
				var pods []*coe.Pod
				for i := range 12 {
					pods = append(pods, newPod(fmt.Sprintf("p%02d", i), n1, in("ns")))
				}
				w.put(pods...)
				w.sync()
				require.Equal(t, coe.PoolExhausted, w.refusal(pods[11]).Reason)
				first := w.lease(pods[0])
				w.setPools(pool(network, large[0], large[1], large[2], ""))
				w.sync()
				for _, p := range pods {
					w.lease(p)
				}
				require.Equal(t, first, w.lease(pods[0]))
			})
		}
	}
}

// TestNodesComeAndGo: when a node and its pool are deleted, its pods keep their addresses. No other
// pod gets these addresses meanwhile.
func TestNodesComeAndGo(t *testing.T) {
	w := newWorld(t, pool(n1, "10.11.2.0/24", "", "", ""))
	a, b := newPod("a", n1), newPod("b", n1)
	w.put(a)
	w.sync()
	before := *w.lease(a)
	w.setPools()
	w.put(b)
	w.sync()
	require.Equal(t, &before, w.lease(a))
	require.Equal(t, coe.NoAddress, w.refusal(b).Reason)

	w.setPools(pool(n2, "10.11.2.0/24", "", "", "")) // another node has the pod-cidr now
	c := newPod("c", n2)
	w.put(c)
	w.sync()
	require.Equal(t, "10.11.2.10", w.address(c), "beside the block that a has")
	require.Equal(t, &before, w.lease(a))
	w.restart()
	require.Equal(t, &before, w.lease(a))

	w.setPools(pool(n1, "10.11.7.0/24", "", "", ""), pool(n2, "10.11.2.0/24", "", "", ""))
	w.put(a, b, c)
	w.complete()
	w.sync()
	require.Equal(t, "10.11.7.2", w.address(b), "the node has another pod-cidr")
	require.Equal(t, &before, w.lease(a))
}

// TestSetPoolsMarksWhomItConcerns: SetPools returns only namespaces that the change affects, and
// none if the pools are unchanged.
func TestSetPoolsMarksWhomItConcerns(t *testing.T) {
	w := newWorld(t, pool(n1, "10.11.2.0/24", "", "", ""), pool(n2, "10.11.3.0/24", "", "", ""))
	w.put(newPod("a", n1, in("ns1")), newPod("b", n2, in("ns2")), newPod("c", "192.168.33.14", in("ns3")))
	w.sync()
	require.Empty(t, w.assigner.SetPools(w.pools))
	changed := pool(n2, "10.11.3.0/24", "", "", "")
	changed.DNS = []netip.Addr{addr("1.1.1.1")}
	require.Equal(t, []string{"ns2", "ns3"}, w.assigner.SetPools(append(w.pools[:1:1], changed)),
		"the namespaces with other DNS servers, and those that wait for a pool")
	w.mark("ns2")
	w.sync()
	require.Equal(t, changed.DNS, w.store.View("ns2").Blocks[0].DNS)
	require.Empty(t, w.store.View("ns1").Blocks[0].DNS)
}

// TestNodesHaveTheirPoolsBeforeTheirPods: a node comes with its pool, and with a pod, while the addresses in use are read.
// The pod gets an address of that pool. A pod that comes after that waits for the pools of its own node.
func TestNodesHaveTheirPoolsBeforeTheirPods(t *testing.T) {
	w := newWorld(t, pool("default", "10.11.0.0/16", "", "", ""))
	first, second := newPod("a", n1), newPod("b", n2)
	w.inUse = func() ([]inuse.Interface, error) {
		w.put(first)
		return nil, nil
	}
	w.repool = func() {
		w.setPools(pool("default", "10.11.0.0/16", "", "", ""), pool(n1, "10.12.0.0/24", "", "", ""))
		w.put(second)
	}
	w.restart()
	w.mark("default")
	require.NoError(t, w.trySync())
	require.Equal(t, "10.12.0", w.lease(first).Addresses[0].Address.String()[:7])
	require.Empty(t, w.leases(second))
}

func TestDHCPFollowsThePool(t *testing.T) {
	w := newWorld(t, specPool())
	p, asks := newPod("a", n1), newPod("b", n1)
	asks.DHCP = true
	w.put(p)
	w.put(asks)
	w.sync()
	require.False(t, w.lease(p).DHCP)
	require.Empty(t, w.lease(p).DNS)
	require.True(t, w.lease(asks).DHCP)
	require.Equal(t, specPool().DNS, w.lease(asks).DNS)
	changed := specPool()
	changed.DNS, changed.DHCP = []netip.Addr{addr("1.1.1.1")}, true
	w.setPools(changed)
	w.sync()
	require.Equal(t, changed.DNS, w.store.View("default").Blocks[0].DNS)
	require.True(t, w.store.View("default").Blocks[0].DHCP)
	for _, one := range []*coe.Pod{p, asks} {
		require.True(t, w.lease(one).DHCP)
		require.Equal(t, changed.DNS, w.lease(one).DNS)
	}
	w.setPools()
	w.sync()
	require.Equal(t, changed.DNS, w.store.View("default").Blocks[0].DNS)
	require.True(t, w.store.View("default").Blocks[0].DHCP)
	require.True(t, w.lease(p).DHCP)
	w.setPools(specPool())
	no := *asks
	no.DHCP = false
	w.put(&no)
	w.sync()
	require.False(t, w.lease(p).DHCP, "the pool does not ask any more")
	require.False(t, w.lease(asks).DHCP, "the pod does not ask any more")
	require.Empty(t, w.lease(asks).DNS)
}
