package ipam_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

// TestRequestedAddressesComeFirst: a pod gets the address that it requests, although pods without
// requests are synced before it. These could otherwise take it as an address, or as the gateway
// of a block.
func TestRequestedAddressesComeFirst(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/22", "", "", "10.0.3.254"))
	var with, without []*coe.Pod
	for i := range 600 {
		ns := in(fmt.Sprintf("ns%03d", i))
		without = append(without, newPod(fmt.Sprint("a", i), n1, ns))
		if i%20 == 0 {
			for j := range 3 { // consecutive addresses, as other software gives them
				with = append(with, newPod(fmt.Sprint("b", i, "-", j), n2, ns, wanting(fmt.Sprintf("10.0.0.%d", 1+i/20*3+j))))
			}
		}
	}
	w.put(without...)
	w.put(with...)
	batch := sorted(w.marked)[:10]
	affected, _, err := w.assigner.Sync(t.Context(), batch)
	require.NoError(t, err)
	w.marked["ns000"] = true
	require.Contains(t, affected, "ns580", "Sync has also synced this namespace, which was not given")
	for _, p := range with {
		require.Equal(t, p.Interfaces[0].Addresses[0].String(), w.address(p))
	}
}

// TestRequestedLater: pods that request addresses are reported after other pods have leases. Their
// namespaces are in another batch.
func TestRequestedLater(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""))
	w.put(newPod("a", n1))
	w.sync()
	require.Equal(t, "10.0.0.2", w.address(newPod("a", n1)))
	b, c := newPod("b", n1), newPod("c", n2, in("other"), wanting("10.0.0.3"))
	w.put(b, c)
	_, _, err := w.assigner.Sync(t.Context(), []string{"default"})
	require.NoError(t, err)
	require.Equal(t, "10.0.0.3", w.address(c))
	require.Equal(t, "10.0.0.4", w.address(b))

	// After a failed commit, the next Sync also makes the changes of the failed one, although the
	// caller does not repeat them.
	d, e := newPod("d", n1), newPod("e", n2, in("other"), wanting("10.0.0.5"))
	w.put(d, e)
	w.journal.failIn = 1
	_, _, err = w.assigner.Sync(t.Context(), []string{"default"})
	require.ErrorIs(t, err, errJournal)
	_, _, err = w.assigner.Sync(t.Context(), []string{"default"})
	require.NoError(t, err)
	require.Equal(t, "10.0.0.5", w.address(e))
	require.Equal(t, "10.0.0.6", w.address(d))
}

// TestRequestedAndRefused: an address that was held for a refused pod goes to the next pod.
func TestRequestedAndRefused(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""))
	first := newPod("z", n1, named("same"))
	w.put(first)
	w.sync()
	a, b := newPod("a", n1, named("same"), wanting("10.0.0.9")), newPod("b", n1, wanting("10.0.0.9"))
	c, d := newPod("c", n1, wanting("10.0.0.10", "fd00::1")), newPod("d", n1, wanting("10.0.0.11", "fd00::1"))
	w.put(a, b, c, d)
	w.sync()
	require.Equal(t, coe.NameTaken, w.refusal(a).Reason)
	require.Equal(t, "10.0.0.9", w.address(b))
	require.Equal(t, coe.AddressTaken, w.refusal(d).Reason)
	e := newPod("e", n2, wanting("10.0.0.11"))
	w.put(e)
	w.sync()
	require.Equal(t, "10.0.0.11", w.address(e))
}

// TestRefusedSecondAddress: a pod has an address, and requests a second one that is refused. It
// loses the first one too. No other pod gets that address before it has rested, not even in the
// journal.
func TestRefusedSecondAddress(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""), pool("default", "fd00::/120", "", "", ""))
	w.put(newPod("a", n1, wanting("10.0.0.2")), newPod("b", n1, wanting("fd00::9")))
	w.sync()
	a := newPod("a", n2, wanting("10.0.0.2", "fd00::9"))
	w.put(a)
	w.sync()
	require.Equal(t, coe.AddressTaken, w.refusal(a).Reason)
	c := newPod("c", n1, wanting("10.0.0.2"))
	w.put(c)
	w.sync()
	require.Contains(t, w.refusal(c).Message, "rests until")
	w.restart()
	w.put(a, newPod("b", n1, wanting("fd00::9")), c)
	w.complete()
	w.sync()
	w.wait(31 * time.Second)
	require.Equal(t, "10.0.0.2", w.address(c))
}

// TestStatusOfBothFamilies: Kubernetes reports the addresses of a lease in the pod's status, one
// family after the other and in any order. This changes nothing. Another address in the status,
// from other software, replaces the lease.
func TestStatusOfBothFamilies(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/24", "", "", ""), pool("default", "fd00::/120", "", "", ""))
	status := func(addrs ...string) *coe.Pod {
		p := newPod("a", n1)
		p.Interfaces = []coe.PodInterface{{UID: p.UID}}
		for _, a := range addrs {
			p.Interfaces[0].Addresses = append(p.Interfaces[0].Addresses, addr(a))
		}
		return p
	}
	w.put(status())
	w.sync()
	before := *w.lease(status())
	require.Len(t, before.Addresses, 2)
	commits := w.journal.commits
	for _, said := range [][]string{{"10.0.0.2"}, {"10.0.0.2", "fd00::2"}, {"fd00::2", "10.0.0.2"}, {"fd00::2"}, {}} {
		w.put(status(said...))
		w.sync()
		require.Equal(t, &before, w.lease(status()), said)
		w.restart()
		w.put(status(said...))
		w.complete()
		w.sync()
		require.Equal(t, &before, w.lease(status()), said)
	}
	require.Equal(t, commits, w.journal.commits)

	w.put(status("10.0.0.77", "fd00::77"))
	w.sync()
	var got []netip.Addr
	for _, a := range w.lease(status()).Addresses {
		got = append(got, a.Address)
	}
	require.Equal(t, []netip.Addr{addr("10.0.0.77"), addr("fd00::77")}, got)
}

// TestNodeOfAPodIsGone: a pod keeps its address while its node is not known. On another node it
// gets another address.
func TestNodeOfAPodIsGone(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/29", "10.0.0.2", "10.0.0.3", ""))
	named := func(node string) *coe.Pod {
		return newPod("a", node, func(p *coe.Pod) { p.NodeName = "worker" })
	}
	w.put(named(n1))
	w.sync()
	before := *w.lease(named(n1))
	w.put(named(""), newPod("b", n1), newPod("c", n1))
	w.wait(time.Hour)
	require.Equal(t, &before, w.lease(named(n1)))
	require.Equal(t, "10.0.0.3", w.address(newPod("b", n1)))
	require.Equal(t, coe.PoolExhausted, w.refusal(newPod("c", n1)).Reason)

	w.restart()
	w.put(named(""), newPod("b", n1), newPod("c", n1))
	w.complete()
	w.sync()
	require.Equal(t, &before, w.lease(named(n1)))
	w.put(named(n1))
	w.sync()
	require.Equal(t, &before, w.lease(named(n1)))
	w.put(named(""))
	w.remove(named(""))
	w.sync()
	w.wait(time.Hour)
	require.Equal(t, "10.0.0.2", w.address(newPod("c", n1)))
}
