package ipam_test

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

func TestRestartFindsTheSame(t *testing.T) {
	w := newWorld(t, specPool(), pool("services", "10.96.0.0/24", "", "", ""))
	pods := []*coe.Pod{newPod("a", n1), newPod("b", n2), newPod("c", n1, in("other")), newPod("d", n1, wanting("172.16.0.1"))}
	w.put(pods...)
	w.store.Update(func(tx *state.Tx) { tx.PutService(coe.RESTCONF, &coe.Service{UID: "s", Namespace: "default"}) })
	w.sync()
	w.remove(pods[1])
	w.sync()
	before := []coe.View{w.store.View("default"), w.store.View("other")}
	w.restart()
	for _, want := range before {
		got := w.store.View(want.Namespace)
		want.Pods, want.Services = nil, nil
		want.PolicySet, got.PolicySet = nil, nil // incomplete after the restart
		require.Equal(t, want, got)
	}
}

func TestDamagedRecordIsSetAside(t *testing.T) {
	for key, value := range map[string]string{
		"lease/a/b":            `{"pod-uid":`,
		"lease/a/c":            `{"pod-uid":"a","interface-uid":"b"}`,
		"elan/x":               `[]`,
		"what/is/this":         `{}`,
		"service/s":            `{"uid":"s","address":"10.0.0.300"}`,
		"nothing":              `{}`,
		"vpn/":                 `nil`,
		"block/e/10.0.0.0/29":  `{"elan":"e","prefix":"10.0.0.0/99"}`,
		"former/a/b/default/x": `{}`,
		"node/x":               `{"node":"10.0.0.1","number":1}`,
		"networks/":            `{}`,
	} {
		w := newWorld(t, specPool())
		a := newPod("a", n1)
		w.put(a)
		w.sync()
		before := maps.Clone(w.journal.records)
		w.journal.records[key] = []byte(value)
		w.restart()
		require.Equal(t, []string{key}, w.damaged())
		require.Equal(t, "192.168.10.3", w.lease(a).Addresses[0].Address.String())
		require.False(t, w.assigner.InUseKnown(), "nothing counts as deleted yet")
		w.put(a)
		w.complete()
		w.sync()
		require.True(t, w.assigner.InUseKnown())
		if key == "what/is/this" || key == "nothing" {
			require.Equal(t, []string{key}, w.damaged())
			require.Contains(t, w.journal.records, key, "another release may have written it")
			continue
		}
		require.Empty(t, w.damaged())
		require.Equal(t, before, w.journal.records)
	}
}

func TestCommitThatFailed(t *testing.T) {
	for name, applied := range map[string]bool{"and had no effect": false, "and took effect": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, specPool())
			a, b := newPod("a", n1), newPod("b", n1)
			w.put(a)
			w.sync()
			w.put(b)
			w.journal.failIn, w.journal.applied = 1, applied
			require.ErrorIs(t, w.trySync(), errJournal)
			require.Empty(t, w.leases(b), "a lease is not used before its record is known to be written")
			w.sync()
			require.Equal(t, "192.168.10.4", w.address(b))
			require.Len(t, w.journal.records, 5)
		})
	}
}

// TestIsolationTakenAway: two namespaces have the same address, and then all namespaces share
// one address space. The first pod keeps the address, and the second is refused. The second
// gets its address again when the first pod is deleted, or when the isolation is set again.
func TestIsolationTakenAway(t *testing.T) {
	w := newWorld(t)
	w.isolated = true
	w.restart()
	w.complete()
	a, b := newPod("a", n1, wanting("10.9.0.1")), newPod("b", n1, in("other"), wanting("10.9.0.1"))
	said := func() {
		w.put(a, b)
		w.complete()
		w.sync()
	}
	said()
	before := w.lease(b)
	w.isolated = false
	w.restart()
	require.Equal(t, []string{"lease/b/b-if"}, w.damaged())
	require.Contains(t, w.store.Cluster().Damaged[0].Message, "go back to that isolation")
	said()
	require.Equal(t, "10.9.0.1", w.address(a))
	require.Empty(t, w.leases(b))
	require.Equal(t, coe.AddressTaken, w.refusal(b).Reason)
	require.Contains(t, w.refusal(b).Message, "pod default/a (a)")
	require.Contains(t, w.journal.records, "lease/b/b-if")

	w.isolated = true
	w.restart()
	said()
	require.Empty(t, w.damaged())
	require.Equal(t, before, w.lease(b))

	w.isolated = false
	w.restart()
	said()
	w.remove(a)
	w.sync()
	w.wait(31 * time.Second)
	require.Equal(t, "10.9.0.1", w.address(b))
	require.Equal(t, before.MAC, w.lease(b).MAC)
	require.Empty(t, w.damaged())
}

// TestDamagedRecordOfAPodThatIsGone: a damaged record is removed when its pod is deleted.
func TestDamagedRecordOfAPodThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.isolated = true
	w.restart()
	w.complete()
	a, b := newPod("a", n1, wanting("10.9.0.1")), newPod("b", n1, in("other"), wanting("10.9.0.1"))
	w.put(a, b)
	w.sync()
	w.isolated = false
	w.restart()
	w.put(a)
	w.sync()
	require.Equal(t, []string{"lease/b/b-if"}, w.damaged(), "not all sources have been listed")
	w.complete()
	w.sync()
	require.Empty(t, w.damaged())
	require.NotContains(t, w.journal.records, "lease/b/b-if")
	require.Equal(t, "10.9.0.1", w.address(a))
}

// TestTransactionsAreBounded: etcd gets no transaction that it cannot make in time, however many pods there are.
func TestTransactionsAreBounded(t *testing.T) {
	const most, pods = 10_000, 12_000
	w := newWorld(t, pool("default", "10.0.0.0/16", "", "", ""))
	w.journal.maxOps = math.MaxInt
	for n := range pods {
		w.put(newPod(fmt.Sprint("p", n), "10.0.0.9"))
	}
	w.sync()
	require.Equal(t, most, w.journal.largest)
	require.NotEmpty(t, w.address(newPod(fmt.Sprint("p", pods-1), "10.0.0.9")))
}
