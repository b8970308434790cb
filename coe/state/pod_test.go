package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

func TestStorePod(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	require.Zero(t, s.Pod("u1"))

	pod := &coe.Pod{UID: "u1", Namespace: "a", Interfaces: []coe.PodInterface{{UID: "i2"}, {UID: "i1"}, {UID: "i3"}}}
	l1 := &coe.Lease{PodUID: "u1", InterfaceUID: "i1", Namespace: "a"}
	l2 := &coe.Lease{PodUID: "u1", InterfaceUID: "i2", Namespace: "a"}
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "u1", Namespace: "b"})
		tx.PutPod(coe.Kubernetes, pod)
		tx.PutLease(l1)
		tx.PutLease(l2)
		tx.PutLease(&coe.Lease{PodUID: "u2", InterfaceUID: "u2", Namespace: "a"})
	})
	require.Equal(t, state.PodState{Pod: pod, Origin: coe.Kubernetes, Leases: []*coe.Lease{l2, l1}}, s.Pod("u1"))
	require.ElementsMatch(t, []*coe.Lease{l1, l2}, s.LeasesOf("u1"))
	require.Len(t, s.LeasesOf("u2"), 1, "no origin reports the pod")

	refusals := map[coe.LeaseKey]coe.Refusal{{PodUID: "u1", InterfaceUID: "i3"}: {Reason: coe.PoolExhausted}}
	s.Update(func(tx *state.Tx) { tx.SetRefusals("a", refusals, nil) })
	require.True(t, s.Pod("u1").Refused)

	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "u1") })
	require.Equal(t, state.PodState{Pod: &coe.Pod{UID: "u1", Namespace: "b"}, Origin: coe.RESTCONF}, s.Pod("u1"))
}

func TestLeasesOf(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF)
	key := coe.LeaseKey{PodUID: "u", InterfaceUID: "i"}
	first := &coe.Lease{PodUID: "u", InterfaceUID: "i", Namespace: "a"}
	second := &coe.Lease{PodUID: "u", InterfaceUID: "i", Namespace: "a", MAC: "0a:58:0a:0b:00:03"}
	moved := &coe.Lease{PodUID: "u", InterfaceUID: "i", Namespace: "b"}
	for _, step := range []struct {
		change func(*state.Tx)
		want   []*coe.Lease
	}{
		{func(tx *state.Tx) { tx.PutLease(first) }, []*coe.Lease{first}},
		{func(tx *state.Tx) { tx.PutLease(second) }, []*coe.Lease{second}},
		{func(tx *state.Tx) { tx.PutLease(moved) }, []*coe.Lease{moved, second}},
		{func(tx *state.Tx) { tx.DeleteLease("a", key) }, []*coe.Lease{moved}},
		{func(tx *state.Tx) { tx.DeleteLease("a", key) }, []*coe.Lease{moved}},
		{func(tx *state.Tx) { tx.DeleteLease("b", key) }, nil},
	} {
		s.Update(step.change)
		require.Equal(t, step.want, s.LeasesOf("u"))
	}
}
