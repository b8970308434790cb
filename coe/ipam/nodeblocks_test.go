package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const n3 = "192.168.33.14"

// ofNodes is a world in which nodes have the blocks.
func ofNodes(t *testing.T, pools ...dhcppool.Pool) *world {
	w := &world{TB: t, journal: newJournal(), pools: pools, now: time.Unix(1000, 0), nodeBlocks: true}
	w.restart()
	w.complete()
	return w
}

// change restarts the world with blocks of nodes, or of elans.
func (w *world) change(nodeBlocks bool, pods ...*coe.Pod) {
	w.nodeBlocks = nodeBlocks
	w.restart()
	w.put(pods...)
	w.complete()
	w.mark(w.store.Namespaces()...)
	w.sync()
}

// blocks returns the blocks of the store: the elan, what it sees, and what its node shares.
func (w *world) blocks() (all []string) {
	for _, ns := range w.store.Namespaces() {
		for _, b := range w.store.View(ns).Blocks {
			text := b.ELAN + " " + b.Prefix.String()
			if b.Shared.IsValid() {
				text += " of " + b.Shared.String()
			}
			all = append(all, text)
		}
	}
	return all
}

// TestNodeBlocks: the namespaces of a node share its blocks, so a pool of 4 blocks serves any number of namespaces.
func TestNodeBlocks(t *testing.T) {
	w := ofNodes(t, pool("default", "10.0.0.0/27", "", "", ""), pool("default", "fd00::/64", "", "", ""))
	var pods []*coe.Pod
	for i := range 5 {
		pods = append(pods, newPod(fmt.Sprint("pod", i), n1, in(fmt.Sprint("ns", i))))
	}
	other := newPod("other", n2, in("other")) // the pool is small for two nodes
	w.put(append(pods, other)...)
	w.sync()
	for i, p := range pods {
		require.Equal(t, []coe.LeasedAddress{
			{Address: addr(fmt.Sprint("10.0.0.", 2+i)), Network: netip.MustParsePrefix("10.0.0.1/32"), Gateway: addr("10.0.0.1")},
			{Address: addr(fmt.Sprint("fd00::", 2+i)), Network: netip.MustParsePrefix("fd00::1/128"), Gateway: addr("fd00::1")},
		}, w.lease(p).Addresses, "behind the gateway alone")
	}
	require.Equal(t, "10.0.0.10", w.address(other))

	// The sixth pod needs a further block. The elans that leave a block have no record of it.
	sixth := newPod("sixth", n1, in("ns0"))
	w.put(sixth)
	w.sync()
	require.True(t, netip.MustParsePrefix("10.0.0.16/28").Contains(addr(w.address(sixth))), "twice as large")
	require.Contains(t, w.blocks(), n1+":ns0 10.0.0.17/32 of 10.0.0.16/28")
	w.remove(pods[1], sixth)
	w.sync()
	w.wait(31 * time.Second)
	require.NotContains(t, w.blocks(), n1+":ns0 10.0.0.17/32 of 10.0.0.16/28")
	require.NotContains(t, w.blocks(), n1+":ns1 10.0.0.1/32 of 10.0.0.0/29")
	require.Contains(t, w.blocks(), n1+":ns0 10.0.0.1/32 of 10.0.0.0/29")
}

// TestNodeBlocksOfPools: the pool of an elan is its subnet, and the pool of a node is one block.
func TestNodeBlocksOfPools(t *testing.T) {
	w := ofNodes(t, pool(n1+":ns1", "10.0.0.0/24", "", "", ""), pool(n1, "10.0.1.0/24", "", "", ""), pool("ns2", "10.0.2.0/24", "", "", ""))
	elan, node, namespace := newPod("a", n1, in("ns1")), newPod("b", n1, in("ns3")), newPod("c", n1, in("ns2"))
	w.put(elan, node, namespace)
	w.sync()
	require.Equal(t, []string{
		n1 + ":ns1 10.0.0.0/24", n1 + ":ns2 10.0.2.1/32 of 10.0.2.0/25", n1 + ":ns3 10.0.1.1/32 of 10.0.1.0/24",
	}, w.blocks())
}

// TestBlocksOfPhysicalNetwork: a namespace with a physical network has blocks of its own, except of the pool of its node, and only
// its pods may request addresses of the subnet. Pods keep the blocks that they shared before.
func TestBlocksOfPhysicalNetwork(t *testing.T) {
	w := ofNodes(t, pool("default", "fd00::/64", "", "", ""), pool(n1, "10.0.1.0/24", "", "", ""), pool("plant", "10.50.0.0/24", "10.50.0.64", "10.50.0.127", ""))
	old, other := newPod("old", n1, in("plant")), newPod("other", n1, in("ns"))
	w.put(old, other)
	w.sync()
	require.Equal(t, "10.50.0.66", w.address(old))
	network, err := physical.Parse("plant=cable,subnet=10.50.0.0/24")
	require.NoError(t, err)
	require.NoError(t, w.physical.Add(network))
	w.change(true, old, other)
	fresh := newPod("fresh", n1, in("plant"))
	forged := newPod("forged", n1, in("ns"), wanting("10.50.0.100"))
	requested := newPod("requested", n1, in("plant"), wanting("10.50.0.101"))
	w.put(fresh, forged, requested)
	w.sync()
	require.Equal(t, "10.50.0.66", w.address(old))
	require.Equal(t, []string{"10.50.0.101", "10.50.0.98"}, []string{w.address(requested), w.address(fresh)})
	require.Contains(t, fmt.Sprint(w.store.View("ns").Refusals), "is in 10.50.0.0/24, the range of physical network cable of namespace plant")
	require.Subset(t, w.blocks(), []string{
		n1 + ":plant 10.50.0.65/32 of 10.50.0.64/27", n1 + ":plant 10.50.0.96/29",
	})
}

// TestExhaustedAfterChange: when no block is left after a change, pods get the free addresses of blocks from before.
func TestExhaustedAfterChange(t *testing.T) {
	w := ofNodes(t, pool(n1, "10.0.0.0/24", "", "", ""))
	pods := []*coe.Pod{newPod("a1", n1, in("a"))}
	w.put(pods...)
	w.sync()
	w.change(false, pods...)
	pods = append(pods, newPod("a2", n1, in("a")), newPod("b1", n1, in("b")))
	w.put(pods...)
	w.sync()
	require.Equal(t, []string{"10.0.0.3", "10.0.0.4"}, []string{w.address(pods[1]), w.address(pods[2])}, "of the block of the node")

	w = newWorld(t, pool("default", "10.0.0.0/28", "", "", ""))
	pods = []*coe.Pod{newPod("a1", n1, in("a")), newPod("b1", n1, in("b"))}
	w.put(pods...)
	w.sync()
	w.change(true, pods...)
	pods = append(pods, newPod("b2", n1, in("b")))
	w.put(pods...)
	w.sync()
	require.Equal(t, "10.0.0.11", w.address(pods[2]), "of the block of the elan")
}

// TestChangeOfBlocks: pods keep their addresses when new blocks are for nodes, and when new blocks are for elans again. A
// block stays as long as a pod has an address of it.
func TestChangeOfBlocks(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""))
	pods := []*coe.Pod{newPod("a1", n1, in("a")), newPod("b1", n1, in("b"))}
	w.put(pods...)
	w.sync()
	of := map[string]*coe.Lease{}
	keep := func() {
		t.Helper()
		for _, p := range pods {
			if had := of[p.UID]; had != nil {
				require.Equal(t, had, w.lease(p))
			}
			of[p.UID] = w.lease(p)
		}
	}
	keep()
	w.change(true, pods...)
	keep()
	pods = append(pods, newPod("a2", n1, in("a")), newPod("b2", n1, in("b")), newPod("requested", n1, in("b"), wanting("10.0.0.20")))
	w.put(pods...)
	w.sync()
	keep()
	require.Equal(t, []string{
		n1 + ":a 10.0.0.0/29", n1 + ":a 10.0.0.17/32 of 10.0.0.16/29", n1 + ":b 10.0.0.8/29", n1 + ":b 10.0.0.17/32 of 10.0.0.16/29",
	}, w.blocks())
	w.change(false, pods...)
	keep()
	pods = append(pods, newPod("a3", n1, in("a")))
	w.put(pods...)
	w.sync()
	keep()
	require.Equal(t, "10.0.0.3", w.address(pods[len(pods)-1]), "of the elan's own block")

	// An address of a block of the node is free for every elan when the pod is deleted.
	w.remove(pods[2:5]...)
	w.sync()
	w.wait(31 * time.Second)
	require.Equal(t, []string{n1 + ":a 10.0.0.0/29", n1 + ":b 10.0.0.8/29"}, w.blocks())
}

// TestMACsOfNode: pods of several namespaces on one node, and the gateways of the node, are on one switch. No two of them get
// one MAC address.
func TestMACsOfNode(t *testing.T) {
	w := ofNodes(t, pool("default", "10.0.0.0/24", "", "", ""), pool("default", "fd00::/64", "", "", ""))
	a := newPod("a", n1, in("a"), withMAC("02:00:00:00:00:01"))
	b := newPod("b", n1, in("b"), withMAC("02:00:00:00:00:01"))
	other := newPod("other", n2, in("b"), withMAC("02:00:00:00:00:01"))
	w.put(a)
	w.sync()
	w.put(b, other)
	w.sync()
	require.Equal(t, "02:00:00:00:00:01", w.lease(a).MAC)
	require.Equal(t, "0a:58:0a:00:00:03", w.lease(b).MAC)
	require.Equal(t, []string{"02:00:00:00:00:01", "pod a/a (a)"}, []string{w.lease(b).DeniedMAC, w.lease(b).DeniedBy})
	require.Equal(t, "02:00:00:00:00:01", w.lease(other).MAC, "another node")

	for n, gateway := range []string{"10.0.0.1", "fd00::1", "169.254.1.1", "fe80::1"} {
		mac := netvirt.GatewayMAC(addr(gateway)).String()
		p := newPod(fmt.Sprint("gateway", n), n1, in("b"), withMAC(mac))
		w.put(p)
		w.sync()
		require.NotEqual(t, mac, w.lease(p).MAC)
		require.Equal(t, "gateway "+gateway, w.lease(p).DeniedBy)
	}

	// The first pod of a node asks for the gateway that it gets.
	first := newPod("first", n3, in("b"), withMAC(netvirt.GatewayMAC(addr("10.0.0.161")).String()))
	w.put(first)
	w.sync()
	require.Equal(t, "10.0.0.161", w.lease(first).Addresses[0].Gateway.String())
	require.Equal(t, "gateway 10.0.0.161", w.lease(first).DeniedBy)
}

// TestGatewayOfTakenMAC: a pod has the MAC address that the gateway of a later block would get. The block gets another
// gateway, also after a restart.
func TestGatewayOfTakenMAC(t *testing.T) {
	w := ofNodes(t, pool("default", "10.0.0.0/27", "", "", ""), pool(n2, "10.9.0.0/24", "", "", ""))
	mac := func(gateway string) func(*coe.Pod) { return withMAC(netvirt.GatewayMAC(addr(gateway)).String()) }
	taker := newPod("taker", n1, in("a"), mac("10.0.0.17"))
	w.put(taker)
	w.sync()
	require.Equal(t, "0a:58:0a:00:00:11", w.lease(taker).MAC)
	pods := []*coe.Pod{taker}
	for i := range 13 { // pod9 is the last one by its UID
		pods = append(pods, newPod(fmt.Sprint("pod", i), n1, in("b")))
	}
	w.restart()
	w.put(pods...)
	w.complete()
	w.sync()
	last := w.lease(pods[10])
	require.Equal(t, coe.LeasedAddress{Address: addr("10.0.0.17"), Network: netip.MustParsePrefix("10.0.0.18/32"), Gateway: addr("10.0.0.18")}, last.Addresses[0])
	require.NotEqual(t, "0a:58:0a:00:00:11", last.MAC)

	// The gateway of a requested address outside of pools, in the pod-cidr of the node, is link-local then.
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n3", HostName: "n3", InternalIP: addr(n3), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24")}})
	})
	single := []*coe.Pod{newPod("single0", n3, in("a"), wanting("10.8.0.7"), mac("10.8.0.1")), newPod("single1", n3, in("b"), wanting("10.8.0.8"))}
	w.put(single[0])
	w.sync()
	w.put(single[1])
	w.sync()
	require.Equal(t, "gateway 10.8.0.1", w.lease(single[0]).DeniedBy)
	require.Equal(t, "10.8.0.1", w.lease(single[1]).Addresses[0].Gateway.String())

	// When the last block with a gateway is free, its MAC address is free.
	w.remove(single...)
	w.sync()
	w.wait(31 * time.Second)
	again := []*coe.Pod{newPod("again0", n3, in("a"), wanting("192.0.2.7"), mac("10.8.0.1")), newPod("again1", n3, in("b"), wanting("10.8.0.8"))}
	w.put(again[0])
	w.sync()
	w.put(again[1])
	w.sync()
	require.Equal(t, "0a:58:0a:08:00:01", w.lease(again[0]).MAC)
	require.Equal(t, "169.254.1.1", w.lease(again[1]).Addresses[0].Gateway.String())
}

// TestEqualMACsAtChange: pods that have the MAC address of another pod or of a gateway of their node when the layout changes
// are refused, and keep their lease. The pod that was first, and the gateway, keep the address.
func TestEqualMACsAtChange(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""))
	mac := withMAC("02:00:00:00:00:01")
	pods := []*coe.Pod{
		newPod("z", n1, in("z"), mac), newPod("a", n1, in("a"), mac), newPod("gateway", n1, in("b"), withMAC(netvirt.GatewayMAC(addr("10.0.0.1")).String())),
	}
	had := map[string]*coe.Lease{}
	for _, p := range pods {
		w.put(p)
		w.sync()
		had[p.UID] = w.lease(p)
		require.Empty(t, had[p.UID].DeniedMAC)
	}
	blocks := w.blocks()
	w.change(true, pods...)
	for range 2 {
		require.Equal(t, had["z"], w.lease(pods[0]), "it was first")
		require.Empty(t, w.leases(pods[1]))
		require.Empty(t, w.leases(pods[2]))
		require.Equal(t, coe.AddressTaken, w.refusal(pods[1]).Reason)
		require.Contains(t, w.refusal(pods[1]).Message, "MAC address 02:00:00:00:00:01 is that of pod z/z (z), on the same node")
		require.Contains(t, w.refusal(pods[2]).Message, "MAC address 0a:58:0a:00:00:01 is that of gateway 10.0.0.1, on the same node")
		require.Equal(t, blocks, w.blocks(), "their blocks stay")
		require.Len(t, w.damaged(), 2)
		w.change(true, pods...)
	}

	w.change(false, pods...)
	for _, p := range pods {
		require.Equal(t, had[p.UID], w.lease(p), "the former layout restores the lease")
	}
	require.Empty(t, w.damaged())

	w.change(true, pods...)
	w.remove(pods[0])
	w.sync()
	w.wait(31 * time.Second)
	for _, p := range pods[1:] { // the owners are gone, also the block with the gateway
		again := w.lease(p)
		require.Equal(t, []any{had[p.UID].MAC, had[p.UID].Addresses}, []any{again.MAC, again.Addresses})
	}
	w.remove(pods[1:]...)
	w.sync()
	w.wait(31 * time.Second)
	require.Empty(t, w.damaged())
	require.Empty(t, w.blocks())
}

// TestMACsOfAdopted: the journal is lost. An interface of the backend with the MAC address of a gateway of its node gets
// another one.
func TestMACsOfAdopted(t *testing.T) {
	w := ofNodes(t, pool("default", "10.0.0.0/24", "", "", ""))
	behind := func(address string) []coe.LeasedAddress {
		return []coe.LeasedAddress{{Address: addr(address), Network: netip.MustParsePrefix("10.0.0.1/32"), Gateway: addr("10.0.0.1")}}
	}
	inBackend := func(name, address, mac string) inuse.Interface {
		return inuse.Interface{
			PodUID: name, InterfaceUID: name, Namespace: name, Pod: name, Primary: true, Node: addr(n1), MAC: mac, Addresses: behind(address),
			Shared: map[netip.Addr]netip.Prefix{addr("10.0.0.1"): netip.MustParsePrefix("10.0.0.0/29")},
		}
	}
	w.inUse = func() ([]inuse.Interface, error) {
		return []inuse.Interface{
			inBackend("a", "10.0.0.2", "0a:58:0a:00:00:01"), inBackend("b", "10.0.0.3", "02:00:00:00:00:01"), inBackend("c", "10.0.0.4", "02:00:00:00:00:01"),
		}, nil
	}
	w.loseJournal()
	pods := []*coe.Pod{newPod("a", n1, in("a")), newPod("b", n1, in("b")), newPod("c", n1, in("c"))}
	w.put(pods...)
	w.complete()
	w.sync()
	require.Equal(t, []string{"0a:58:0a:00:00:02", "02:00:00:00:00:01", "0a:58:0a:00:00:04"}, []string{w.lease(pods[0]).MAC, w.lease(pods[1]).MAC, w.lease(pods[2]).MAC})
}
