package ipam_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// withBackend returns a world whose backend has all leases when the datastore is lost. Its pods
// have addresses of two families, in small and in grown blocks. Some have moved, some have
// several interfaces, and some have addresses from outside the pools.
func withBackend(t *testing.T) (w *world, pods []*coe.Pod) {
	w = newWorld(t, pool("default", "10.0.0.0/16", "", "", ""), pool("default", "fd00::/112", "", "", ""), pool(n2, "10.1.0.0/24", "", "", "10.1.0.254"))
	for i := range 40 {
		pods = append(pods, newPod(fmt.Sprintf("p%02d", i), []string{n1, n2}[i%2], in([]string{"ns1", "ns2"}[i/2%2])))
	}
	pods[3].MAC = "02:00:00:00:00:03"
	pods[5].Interfaces = []coe.PodInterface{{UID: "i1"}, {UID: "i2"}}
	wanting("172.16.0.9")(pods[6])
	wanting("10.0.200.7", "fd01::7")(pods[7])
	w.put(pods...)
	w.sync()
	moved := *pods[8]
	moved.HostIP = addr(n2)
	pods[8] = &moved
	w.put(pods[8])
	w.sync()
	w.inUse = func() ([]inuse.Interface, error) { return nil, nil }
	rows := w.inBackend()
	require.Len(t, rows, 41)
	w.inUse = func() ([]inuse.Interface, error) { return rows, nil }
	return w, pods
}

// living returns the living leases without the data that a lost journal loses: their order, and
// the names of deleted pools.
func (w *world) living() map[coe.LeaseKey]coe.Lease {
	living := map[coe.LeaseKey]coe.Lease{}
	for _, ns := range w.store.Namespaces() {
		for _, l := range w.store.View(ns).Leases {
			if l.Released == 0 {
				copied := *l
				copied.Seq, copied.Chosen = 0, 0
				living[l.Key()] = copied
			}
		}
	}
	return living
}

func TestLostJournalIsMadeOfTheBackend(t *testing.T) {
	for name, pooled := range map[string]bool{"with its pools": true, "before any pool is known": false} {
		t.Run(name, func(t *testing.T) {
			w, pods := withBackend(t)
			want, pools := w.living(), w.pools
			if !pooled {
				w.pools = nil
			}
			w.loseJournal()
			require.Empty(t, w.living(), "Load does not ask the backend")
			extra := newPod("extra", n1, in("ns3"))
			w.put(extra)
			w.sync()
			if !pooled {
				w.setPools(pools...)
				w.sync()
			}
			require.NotEmpty(t, w.address(extra), "a new pod gets an address too")
			got := w.living()
			delete(got, w.lease(extra).Key())
			require.Equal(t, want, got)

			w.put(pods[1:]...) // the first pod is deleted
			w.complete()
			w.sync()
			require.Empty(t, w.leases(pods[0]))
			w.wait(31 * time.Second)
			got = w.living()
			delete(got, w.lease(extra).Key())
			delete(want, coe.LeaseKey{PodUID: "p00", InterfaceUID: "p00"})
			require.Equal(t, want, got)
			require.NotContains(t, w.journal.records, "adopting/")
		})
	}
}

func TestInUseOfThePodsThatAreGoneRests(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/29", "", "", ""))
	old := newPod("old", n1)
	w.put(old)
	w.sync()
	rows := w.inBackend()
	w.inUse = func() ([]inuse.Interface, error) { return rows, nil }
	w.pools = []dhcppool.Pool{pool("default", "10.0.0.0/29", "10.0.0.2", "10.0.0.2", "")}
	w.loseJournal()
	w.now = w.now.Add(time.Hour)
	again := newPod("new", n1)
	w.put(again)
	w.complete()
	w.sync()
	require.Equal(t, coe.PoolExhausted, w.refusal(again).Reason)
	w.wait(29 * time.Second)
	require.Equal(t, coe.PoolExhausted, w.refusal(again).Reason, "its address rests since its deletion became known")
	w.wait(2 * time.Second)
	require.Equal(t, "10.0.0.2", w.address(again))
}

func TestNothingIsGivenUntilTheBackendAnswers(t *testing.T) {
	w := newWorld(t, specPool())
	away, asked := errors.New("connection refused"), 0
	w.inUse = func() ([]inuse.Interface, error) { asked++; return nil, away }
	w.restart()
	a := newPod("a", n1)
	w.put(a)
	for range 2 {
		err := w.trySync()
		require.ErrorIs(t, err, away)
		require.ErrorContains(t, err, "read the addresses in use from the backend: connection refused")
	}
	require.Empty(t, w.leases(a))
	require.Empty(t, w.journal.records)
	require.False(t, w.assigner.InUseKnown())
	away = nil
	w.sync()
	require.False(t, w.assigner.InUseKnown(), "not all services have been reported")
	require.Equal(t, "192.168.10.3", w.address(a))
	require.Equal(t, 3, asked)
	w.complete()
	w.sync()
	require.True(t, w.assigner.InUseKnown())

	w.put(newPod("b", n1))
	w.sync()
	w.restart()
	w.put(newPod("c", n1))
	w.sync()
	require.Equal(t, 3, asked, "a journal with leases makes the question unnecessary")
}

// TestInUseOfAnEmptyCluster: a cluster without pods asks the backend as soon as all sources
// have been listed, so that objects left in the backend can be removed.
func TestInUseOfAnEmptyCluster(t *testing.T) {
	w, _ := withBackend(t)
	w.loseJournal()
	require.NoError(t, w.trySync())
	require.False(t, w.assigner.InUseKnown())
	w.complete()
	require.NoError(t, w.trySync())
	require.Equal(t, map[string]bool{"ns1": true, "ns2": true}, w.marked)
	w.sync()
	require.True(t, w.assigner.InUseKnown())
	require.Empty(t, w.living())
	w.wait(31 * time.Second)
	require.Empty(t, w.journal.records)
}

// TestPoolsAreSetWhileTheBackendIsAsked: a backend that does not answer delays only Sync.
func TestPoolsAreSetWhileTheBackendIsAsked(t *testing.T) {
	w := newWorld(t)
	asking, answer := make(chan struct{}), make(chan struct{})
	w.inUse = func() ([]inuse.Interface, error) {
		close(asking)
		<-answer
		return nil, nil
	}
	w.restart()
	a := newPod("a", n1)
	w.put(a)
	synced := make(chan error)
	go func() {
		_, _, err := w.assigner.Sync(t.Context(), []string{"default"})
		synced <- err
	}()
	<-asking
	w.assigner.SetPools([]dhcppool.Pool{specPool()})
	close(answer)
	require.NoError(t, <-synced)
	require.Equal(t, "192.168.10.3", w.address(a))
}

// TestAdoptionThatIsCutShort lets each commit of an adoption fail, one at a time, and restarts the
// bridge after it. The next run continues the adoption.
func TestAdoptionThatIsCutShort(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for failIn := 1; ; failIn++ {
			w, pods := withBackend(t)
			want := w.living()
			w.journal.maxOps = 7
			w.loseJournal()
			w.put(pods...)
			w.journal.failIn, w.journal.applied = failIn, applied
			err := w.trySync()
			if err == nil {
				require.Greater(t, failIn, 10)
				break
			}
			require.ErrorIs(t, err, errJournal)
			w.restart()
			w.put(pods...)
			w.sync()
			require.Equal(t, want, w.living(), "commit %d", failIn)
			w.complete()
			w.sync()
			w.restart()
			require.Equal(t, want, w.living())
			require.NotContains(t, w.journal.records, "adopting/")
		}
	}
}

// TestBackendThatSaysLittleOrWrong: the backend has incomplete and conflicting interfaces. Each
// one keeps the addresses that do not conflict, and no other interface gets them.
func TestBackendThatSaysLittleOrWrong(t *testing.T) {
	w := newWorld(t)
	row := func(uid, node string, addrs ...coe.LeasedAddress) inuse.Interface {
		return inuse.Interface{PodUID: uid, InterfaceUID: uid, Namespace: "default", Pod: uid, Primary: true, Node: addr(node), MAC: "0a:58:00:00:00:01", Addresses: addrs}
	}
	in := func(a, network, gateway string) coe.LeasedAddress {
		l := coe.LeasedAddress{Address: addr(a), Gateway: addr(gateway)}
		if network != "" {
			l.Network = netip.MustParsePrefix(network)
		}
		return l
	}
	rows := []inuse.Interface{
		row("a", n1, in("10.0.0.9", "", "")), // no block: a block is made, and its gateway is not an address of the others
		row("b", n1, in("10.0.0.10", "", "")),
		row("c", n1, in("10.0.0.20", "10.0.0.16/29", "10.0.0.17")),
		row("d", n2, in("10.0.0.22", "10.0.0.16/28", "10.0.0.17")), // overlaps c's
		row("e", n1, in("10.0.0.20", "10.0.0.16/29", "10.0.0.17")), // c's address
		row("f", n1, in("10.0.0.17", "10.0.0.16/29", "10.0.0.17")), // a gateway
		row("g", n1, in("127.0.0.1", "", "")),
		row("h", n1, in("10.0.0.42", "10.0.0.41/29", "10.0.0.99"), in("fd00::7", "fd00::/120", "fd00::1")),
		row("i", n1),
		row("", n1, in("10.0.0.50", "", "")),
		row("k", "", in("10.0.0.51", "", "")),
	}
	w.inUse = func() ([]inuse.Interface, error) { return rows, nil }
	w.pools = []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", "")}
	w.restart()
	w.put(newPod("z", n1))
	w.sync()
	got := map[string]string{}
	for _, l := range w.store.View("default").Leases {
		for _, a := range l.Addresses {
			got[l.Pod] += fmt.Sprint(a.Address, " in ", a.Network, " ")
		}
	}
	z := got["z"]
	delete(got, "z")
	require.Equal(t, map[string]string{
		"a": "10.0.0.9 in 10.0.0.8/29 ", "b": "10.0.0.10 in 10.0.0.8/29 ", "c": "10.0.0.20 in 10.0.0.16/29 ",
		"d": "10.0.0.22 in 169.254.1.1/32 ", "h": "10.0.0.42 in 10.0.0.40/29 fd00::7 in fd00::/120 ",
	}, got)
	require.Equal(t, "10.0.0.12 in 10.0.0.8/29 ", z)
	macs := map[string]bool{}
	for _, l := range w.store.View("default").Leases {
		require.False(t, macs[l.Node.String()+l.MAC])
		macs[l.Node.String()+l.MAC] = true
	}
	before := maps.Clone(w.journal.records)
	w.inUse = nil
	w.restart()
	require.Equal(t, before, w.journal.records)
}
