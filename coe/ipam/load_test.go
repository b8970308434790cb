package ipam_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
)

func TestRestartFindsTheSame(t *testing.T) {
	w := newWorld(t, specPool(), pool("services", "10.96.0.0/24", "", "", ""))
	pods := []*coe.Pod{newPod("a", n1), newPod("b", n2), newPod("c", n1, in("other")), newPod("d", n1, wanting("172.16.0.1"))}
	w.put(pods...)
	w.store.Update(func(tx *coe.Tx) { tx.PutService(coe.RESTCONF, &coe.Service{UID: "s", Namespace: "default"}) })
	w.sync()
	w.remove(pods[1])
	w.sync()
	before := []coe.View{w.store.View("default"), w.store.View("other")}
	w.restart()
	for _, want := range before {
		got := w.store.View(want.Namespace)
		want.Pods, want.Services = nil, nil
		require.Equal(t, want, got)
	}
}

func TestLoadNamesTheDamagedRecord(t *testing.T) {
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
	} {
		w := newWorld(t)
		w.journal.records[key] = []byte(value)
		require.ErrorContains(t, w.assigner.Load(t.Context()), `load record "`+key+`"`)
	}
	w := newWorld(t, specPool())
	w.put(newPod("a", n1))
	w.sync()
	delete(w.journal.records, "block/"+n1+":default/192.168.10.0/29")
	require.ErrorContains(t, w.assigner.Load(t.Context()), `load record "lease/a/a"`)
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
			require.Empty(t, w.leases(b), "nothing is used before it is known to be written")
			w.sync()
			require.Equal(t, "192.168.10.4", w.address(b))
			require.Len(t, w.journal.records, 5)
		})
	}
}

// TestIsolationTakenAway: what two namespaces have alike can't be had by both
// when all share one address space; the error says what to do, and doing it helps.
func TestIsolationTakenAway(t *testing.T) {
	w := newWorld(t)
	w.isolated = true
	w.restart()
	w.complete()
	a, b := newPod("a", n1, wanting("10.9.0.1")), newPod("b", n1, in("other"), wanting("10.9.0.1"))
	w.put(a, b)
	w.sync()
	w.isolated = false
	err := w.newAssigner().Load(t.Context())
	require.ErrorContains(t, err, "10.9.0.1 is held by lease/a/a-if")
	require.ErrorContains(t, err, "go back to that isolation")

	w.remove(b)
	w.sync()
	w.wait(30 * time.Second)
	w.restart()
	w.complete()
	w.put(a)
	w.sync()
	require.Equal(t, "10.9.0.1", w.address(a))
}
