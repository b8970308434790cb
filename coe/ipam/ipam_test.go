package ipam_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

const n1, n2 = "192.168.33.12", "192.168.33.13"

func TestFirstPod(t *testing.T) {
	spec := specPool()
	spec.DNS = []netip.Addr{addr("192.168.10.2")}
	w := newWorld(t, spec)
	p := newPod("a", n1)
	w.put(p)
	w.sync()

	require.Equal(t, &coe.Lease{
		PodUID: "a", InterfaceUID: "a", Seq: 1, Namespace: "default", Pod: "a", Name: "default:a", Primary: true,
		Node: addr(n1), MAC: "0a:58:c0:a8:0a:03",
		Addresses: []coe.LeasedAddress{{
			Address: addr("192.168.10.3"), Network: netip.MustParsePrefix("192.168.10.0/29"), Gateway: addr("192.168.10.2"),
		}},
		Chosen: 1000000,
	}, w.lease(p))
	v := w.store.View("default")
	require.Equal(t, []*coe.Block{{
		ELAN: n1 + ":default", Prefix: netip.MustParsePrefix("192.168.10.0/29"), Gateway: addr("192.168.10.2"),
		Network: "default", Subnet: netip.MustParsePrefix("192.168.10.0/24"), DNS: spec.DNS,
	}}, v.Blocks)
	require.Equal(t, map[string]*coe.ELANFact{n1 + ":default": {Name: n1 + ":default", VNI: 70000, NetworkType: "VXLAN"}}, v.ELANs)
	require.Equal(t, &coe.VPNFact{Name: "default", Namespace: "default", RD: 2}, v.VPN)
	require.Len(t, w.journal.records, 4)
	require.Equal(t, 1, w.journal.commits)
	require.Zero(t, w.again)
}

func TestReleaseRestsThenGoes(t *testing.T) {
	w := newWorld(t, specPool())
	a, b := newPod("a", n1), newPod("b", n1)
	w.put(a)
	w.sync()
	before := *w.lease(a)

	w.remove(a)
	w.sync()
	require.Empty(t, w.leases(a))
	require.Equal(t, 30*time.Second, w.again)
	w.put(b)
	w.sync()
	require.NotEqual(t, before.Addresses, w.lease(b).Addresses, "an address rests")

	w.now = w.now.Add(29 * time.Second)
	w.put(a)
	w.sync()
	require.Equal(t, &before, w.lease(a), "a pod that comes back gets the same lease")

	w.remove(a, b)
	w.sync()
	w.wait(30 * time.Second)
	require.Empty(t, w.journal.records)
	require.Empty(t, w.store.Namespaces())
}

// The record of an elan-instance has the network-type of its interfaces, until one with another type comes. It stays while addresses
// of its pods rest.
func TestRecordOfELAN(t *testing.T) {
	w := newWorld(t, specPool())
	typed := func(network string) func(*coe.Pod) {
		return func(p *coe.Pod) { p.Interfaces = []coe.PodInterface{{UID: p.UID, NetworkType: network}} }
	}
	fact := func(node string, vni uint32, network string) *coe.ELANFact {
		return &coe.ELANFact{Name: node + ":default", VNI: vni, NetworkType: network}
	}
	a, b := newPod("a", n1, typed("VXLAN")), newPod("b", n2, typed("FLAT"))
	w.put(a, newPod("a2", n1), b)
	w.sync()
	facts := map[string]*coe.ELANFact{n1 + ":default": fact(n1, 70000, "VXLAN"), n2 + ":default": fact(n2, 70001, "FLAT")}
	require.Equal(t, facts, w.store.View("default").ELANs)

	w.journal.records["elan/"+n2+":default"] = []byte(`{"name":"` + n2 + `:default","vni":70001}`) // of an earlier version
	w.restart()
	w.put(a, newPod("a2", n1), b)
	w.complete()
	w.sync()
	require.Equal(t, facts, w.store.View("default").ELANs)

	w.put(newPod("c", n2, typed("VXLAN")), newPod("a2", n1, typed("VLAN")))
	w.sync()
	facts[n1+":default"], facts[n2+":default"] = fact(n1, 70000, coe.MixedNetworks), fact(n2, 70001, coe.MixedNetworks)
	require.Equal(t, facts, w.store.View("default").ELANs)
	w.remove(a, newPod("a2", n1), b)
	w.sync()
	w.restart()
	w.complete()
	w.wait(29 * time.Second)
	require.Equal(t, facts, w.store.View("default").ELANs)
	w.wait(time.Second)
	delete(facts, n1+":default")
	require.Equal(t, facts, w.store.View("default").ELANs)
}

func TestOwnerThatComesBackLateButBeforeExpiryWasSeen(t *testing.T) {
	w := newWorld(t, specPool())
	a := newPod("a", n1)
	w.put(a)
	w.sync()
	want := w.address(a)
	w.remove(a)
	w.sync()
	w.now = w.now.Add(time.Hour)
	w.put(a)
	w.sync()
	require.Equal(t, want, w.address(a))
}

func TestNothingIsReleasedBeforeComplete(t *testing.T) {
	w := newWorld(t, specPool())
	a, b := newPod("a", n1), newPod("b", n1)
	w.put(a, b)
	w.sync()
	w.remove(b)
	w.sync()
	want := w.address(a)

	w.restart()
	w.now = w.now.Add(time.Hour)
	w.mark("default")
	w.put(newPod("c", n1))
	w.sync()
	v := w.store.View("default")
	require.Len(t, v.Leases, 3)
	require.Zero(t, w.again)

	w.put(newPod("a", n2)) // another source may know better yet
	w.sync()
	require.Equal(t, addr(n1), w.store.View("default").Leases.Get(coe.LeaseKey{PodUID: "a", InterfaceUID: "a"}).Node)
	w.put(a)
	w.complete()
	w.sync()
	require.Equal(t, want, w.address(a))
	require.Len(t, w.store.View("default").Leases, 2)
}

func TestPodMoves(t *testing.T) {
	w := newWorld(t, specPool())
	w.put(newPod("a", n1))
	w.sync()
	first := w.lease(newPod("a", n1))

	moved := newPod("a", n2)
	w.now = w.now.Add(5 * time.Second)
	w.put(moved)
	w.sync()
	second := w.lease(moved)
	require.Equal(t, first.Name, second.Name)
	require.Equal(t, first.Seq, second.Seq)
	require.Equal(t, addr(n2), second.Node)
	require.Equal(t, "192.168.10.10", second.Addresses[0].Address.String())
	require.Equal(t, first.Chosen+5000, second.Chosen, "chosen again")
	require.Equal(t, "0a:58:c0:a8:0a:0a", second.MAC)
	require.Len(t, w.store.View("default").Blocks, 2, "the old address rests in its block")

	b := newPod("b", n1)
	w.put(b)
	w.sync()
	require.Equal(t, "192.168.10.4", w.address(b))
	w.restart()
	require.Len(t, w.store.View("default").Blocks, 2)
	w.put(newPod("a", n1), b)
	w.complete()
	w.sync()
	require.Equal(t, first.Addresses, w.lease(newPod("a", n1)).Addresses, "who moves back gets the same")

	w.wait(31 * time.Second)
	require.Len(t, w.store.View("default").Blocks, 1)
}

func TestNames(t *testing.T) {
	w := newWorld(t, specPool())
	a, b := newPod("a", n1, named("web")), newPod("b", n1, named("web"))
	w.put(b)
	w.sync()
	w.put(a)
	w.sync()
	require.Empty(t, w.leases(a))
	require.Equal(t, coe.NameTaken, w.refusal(a).Reason)
	require.Contains(t, w.refusal(a).Message, "pod b has the name default/web")

	w.remove(b)
	w.sync()
	require.Equal(t, "default:web", w.lease(a).Name, "a name does not rest")
	w.put(b)
	w.sync()
	require.Equal(t, coe.NameTaken, w.refusal(b).Reason)
}

func TestNamesAndAddressesAreSwapped(t *testing.T) {
	w := newWorld(t)
	w.put(newPod("a", n1, named("x"), wanting("10.1.1.2")), newPod("b", n1, named("y"), wanting("10.1.1.3")))
	w.sync()
	a, b := newPod("a", n1, named("y"), wanting("10.1.1.3")), newPod("b", n1, named("x"), wanting("10.1.1.2"))
	w.put(a, b)
	w.sync()
	for range 3 {
		w.wait(31 * time.Second)
	}
	require.Equal(t, "default:y", w.lease(a).Name)
	require.Equal(t, "default:x", w.lease(b).Name)
	require.Equal(t, "10.1.1.3", w.address(a))
	require.Equal(t, "10.1.1.2", w.address(b))
}

func TestPrimaryInterface(t *testing.T) {
	w := newWorld(t, specPool())
	ifaces := func(uids ...string) *coe.Pod {
		p := newPod("a", n1)
		for _, uid := range uids {
			p.Interfaces = append(p.Interfaces, coe.PodInterface{UID: uid})
		}
		return p
	}
	names := func(p *coe.Pod) (names []string) {
		for _, l := range w.leases(p) {
			names = append(names, l.Name)
		}
		return names
	}
	for _, step := range []struct {
		uids []string
		want []string
	}{
		{[]string{"i1", "i2"}, []string{"default:a", "default:a:i2"}},
		{[]string{"i2", "i1"}, []string{"default:a:i2", "default:a"}},
		{[]string{"i2"}, []string{"default:a:i2"}},
		{[]string{"i3", "i2"}, []string{"default:a", "default:a:i2"}},
		{[]string{"i1", "i3", "i2"}, []string{"default:a:i1", "default:a", "default:a:i2"}},
	} {
		p := ifaces(step.uids...)
		w.put(p)
		w.sync()
		require.Equal(t, step.want, names(p), step.uids)
	}
}

func TestMAC(t *testing.T) {
	w := newWorld(t, specPool())
	a := newPod("a", n1, withMAC("02-00-00-00-00-AA"))
	b := newPod("b", n1, withMAC("02:00:00:00:00:aa"))
	c := newPod("c", n2, withMAC("02:00:00:00:00:aa"))
	d := newPod("d", n1, withMAC("01:00:00:00:00:aa"))
	w.put(a, b, c, d)
	w.sync()
	require.Equal(t, "02:00:00:00:00:aa", w.lease(a).MAC)
	require.Equal(t, "0a:58:c0:a8:0a:04", w.lease(b).MAC, "taken in the elan")
	require.Equal(t, "02:00:00:00:00:aa", w.lease(c).MAC, "free in another elan")
	require.Equal(t, "0a:58:c0:a8:0a:05", w.lease(d).MAC, "multicast")

	w.put(newPod("a", n1))
	w.sync()
	require.Equal(t, "02:00:00:00:00:aa", w.lease(a).MAC, "remembered")
	w.put(newPod("a", n1, withMAC("02:00:00:00:00:bb")))
	w.sync()
	require.Equal(t, "02:00:00:00:00:bb", w.lease(a).MAC)

	w.remove(newPod("a", n1))
	w.wait(31 * time.Second)
	w.put(b)
	w.sync()
	require.Equal(t, "0a:58:c0:a8:0a:04", w.lease(b).MAC, "the address of a running pod does not change because another pod is deleted")

	clash := newPod("e", n1, withMAC("0a:58:c0:a8:0a:0b")) // what the address 192.168.10.11 would have
	f := newPod("f", n1, wanting("192.168.10.11"))
	w.put(clash)
	w.sync()
	w.put(f)
	w.sync()
	require.NotEqual(t, w.lease(clash).MAC, w.lease(f).MAC)
	require.True(t, strings.HasPrefix(w.lease(f).MAC, "0a:58:"))
}

func TestAddressesOfSources(t *testing.T) {
	w := newWorld(t)
	w.store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.RESTCONF, &coe.Node{UID: "n1", InternalIP: addr(n1), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.11.2.0/24")}})
	})
	a := newPod("a", n1, wanting("10.11.2.28"))
	w.put(a)
	w.sync()
	require.Equal(t, []coe.LeasedAddress{{Address: addr("10.11.2.28"), Network: netip.MustParsePrefix("10.11.2.1/32"), Gateway: addr("10.11.2.1")}}, w.lease(a).Addresses)
	require.Len(t, w.store.View("default").Blocks, 1)

	b := newPod("b", n2, wanting("10.11.2.28"), in("other"))
	w.put(b)
	w.sync()
	require.Equal(t, coe.AddressTaken, w.refusal(b).Reason)
	require.Contains(t, w.refusal(b).Message, "10.11.2.28 is the address of pod default/a (a)")

	w.remove(a)
	w.sync()
	w.mark("other")
	w.sync()
	require.Contains(t, w.refusal(b).Message, "rests until 00:17:10 UTC after its use by pod default/a (a)")
	w.now = w.now.Add(30 * time.Second)
	w.mark("default") // because of again; "other" is affected
	w.sync()
	require.Equal(t, "10.11.2.28", w.address(b))
	require.Equal(t, "169.254.1.1", w.lease(b).Addresses[0].Gateway.String())

	for address, why := range map[string]string{
		"127.0.0.1": "loopback", "0.0.0.0": "unspecified", "224.0.0.1": "multicast", n2: "address of the pod's node",
	} {
		c := newPod("c", n2, wanting(address))
		w.put(c)
		w.sync()
		require.Equal(t, coe.AddressInvalid, w.refusal(c).Reason)
		require.Contains(t, w.refusal(c).Message, why)
	}
}

func TestAddressChanges(t *testing.T) {
	w := newWorld(t, specPool())
	w.put(newPod("a", n1, wanting("")))
	w.sync()
	require.Equal(t, "192.168.10.3", w.address(newPod("a", n1, wanting(""))))
	changed := newPod("a", n1, wanting("192.168.10.5"))
	w.put(changed)
	w.sync()
	require.Equal(t, "192.168.10.5", w.address(changed))
	require.Equal(t, "192.168.10.0/29", w.lease(changed).Addresses[0].Network.String())

	b := newPod("b", n1, wanting("192.168.10.3"))
	w.put(b)
	w.sync()
	require.Equal(t, coe.AddressTaken, w.refusal(b).Reason)
	require.Contains(t, w.refusal(b).Message, "rests for a while after its use by pod a")
	w.wait(30 * time.Second)
	require.Equal(t, "192.168.10.3", w.address(b))

	back := newPod("a", n1, wanting(""))
	w.put(back)
	w.sync()
	require.Equal(t, "192.168.10.5", w.address(back), "a source without pods changes nothing")
}

func TestIsolatedNamespacesMayShareAddresses(t *testing.T) {
	w := &world{TB: t, journal: newJournal(), isolated: true, now: time.Unix(1000, 0)}
	w.restart()
	w.complete()
	a, b, c := newPod("a", n1, wanting("10.0.0.9")), newPod("b", n1, wanting("10.0.0.9"), in("other")), newPod("c", n1, wanting("10.0.0.9"))
	w.put(a, b)
	w.sync()
	w.put(c)
	w.sync()
	require.Equal(t, "10.0.0.9", w.address(a))
	require.Equal(t, "10.0.0.9", w.address(b))
	require.Equal(t, coe.AddressTaken, w.refusal(c).Reason)
}

func TestRefusalsHeal(t *testing.T) {
	w := newWorld(t)
	a := newPod("a", n1)
	w.put(a)
	w.sync()
	require.Equal(t, coe.Refusal{Reason: coe.NoAddress, Message: `no pool serves the pod and it requests no address; ` +
		`post a dhcp_allocation_pool with network-id "192.168.33.12:default", "192.168.33.12", "default", or send ip-address`}, w.refusal(a))

	w.setPools(pool("default", "10.0.0.0/30", "", "", ""))
	w.sync()
	require.Equal(t, "10.0.0.2", w.address(a))
	require.Empty(t, w.store.View("default").Refusals)

	b := newPod("b", n1, in("other"))
	w.put(b)
	w.sync()
	require.Equal(t, coe.PoolExhausted, w.refusal(b).Reason)
	require.Contains(t, w.refusal(b).Message, `pool "default" has no address left for elan-instance 192.168.33.12:other (10.0.0.0/30 has 1`)
	commits := w.journal.commits
	w.mark("other")
	w.sync()
	require.Equal(t, commits, w.journal.commits, "asking again writes nothing")

	w.remove(a)
	w.sync()
	w.now = w.now.Add(30 * time.Second)
	w.mark("default")
	w.sync()
	require.Equal(t, "10.0.0.2", w.address(b), "healed by another namespace's release")

	w.setPools()
	c := newPod("c", n1)
	w.put(c)
	w.sync()
	require.Equal(t, coe.NoAddress, w.refusal(c).Reason)
	require.Equal(t, "10.0.0.2", w.address(b), "a pod with an address keeps it")
}

func TestPodsWithoutNetwork(t *testing.T) {
	w := newWorld(t, specPool())
	a := newPod("a", n1)
	w.put(a, newPod("noname", n1, named("")), newPod("nonode", ""), newPod("host", n1, func(p *coe.Pod) { p.NoNetwork = true }))
	w.sync()
	require.Len(t, w.store.View("default").Leases, 1)
	require.Empty(t, w.store.View("default").Refusals)
	done := newPod("a", n1, func(p *coe.Pod) { p.NoNetwork = true })
	w.put(done)
	w.sync()
	require.Empty(t, w.leases(a))
	w.wait(30 * time.Second)
	require.Empty(t, w.journal.records)
}

func TestNamespaceOfAPodChanges(t *testing.T) {
	for name, order := range map[string][]string{"old one first": {"default", "other"}, "new one first": {"other", "default"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, specPool())
			w.put(newPod("a", n1))
			w.sync()
			moved := newPod("a", n1, in("other"))
			w.put(moved)
			for _, ns := range order {
				_, _, err := w.assigner.Sync(t.Context(), []string{ns})
				require.NoError(t, err)
			}
			require.Equal(t, "other:a", w.lease(moved).Name)
			require.Empty(t, w.store.View("default").Leases)
			w.wait(30 * time.Second)
			require.Equal(t, []string{"other"}, w.store.Namespaces())
		})
	}
}

func TestIDsExhausted(t *testing.T) {
	w := &world{TB: t, journal: newJournal(), now: time.Unix(1000, 0), vnis: 1}
	w.restart()
	w.complete()
	w.setPools(pool("default", "10.0.0.0/16", "", "", ""))
	a, b, c := newPod("a", n1), newPod("b", n2), newPod("c", n1, in("other"))
	w.put(a)
	w.sync()
	w.put(b, c)
	w.sync()
	require.Equal(t, coe.IDsExhausted, w.refusal(b).Reason)
	require.Equal(t, coe.IDsExhausted, w.refusal(c).Reason)
	w.remove(a)
	w.sync()
	w.now = w.now.Add(30 * time.Second)
	w.mark("default")
	w.sync()
	require.NotEmpty(t, w.leases(b))
}

// TestMACWaitsForEverySource: after a restart, the source without precedence is the first to
// report the pod, and requests another MAC address. The pod keeps its own.
func TestMACWaitsForEverySource(t *testing.T) {
	w := &world{TB: t, journal: newJournal(), now: time.Unix(1000, 0), origins: []coe.Origin{coe.RESTCONF, coe.Kubernetes}}
	w.pools = []dhcppool.Pool{specPool()}
	say := func() {
		w.store.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, newPod("a", n1, withMAC("02:00:00:00:00:aa"))) })
		w.sync()
		w.store.Update(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, newPod("a", n1)) })
		w.sync()
		w.complete()
		w.sync()
	}
	w.restart()
	w.store.Update(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, newPod("a", n1)) })
	w.complete()
	w.sync()
	w.restart()
	say()
	require.Equal(t, "0a:58:c0:a8:0a:03", w.lease(newPod("a", n1)).MAC)

	w.restart()
	w.store.Update(func(tx *state.Tx) { tx.PutPod(coe.RESTCONF, newPod("a", n1, withMAC("02:00:00:00:00:aa"))) })
	w.complete()
	w.sync()
	require.Equal(t, "02:00:00:00:00:aa", w.lease(newPod("a", n1)).MAC, "when the other is known to say nothing")
}
