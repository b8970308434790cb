package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Entities of an origin are visible even if another origin overrides them.
func TestEntities(t *testing.T) {
	s := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	pods := s.PodsOf(coe.RESTCONF)
	require.Nil(t, pods.Get("u"))
	ours, theirs := &coe.Pod{UID: "u", Name: "ours"}, &coe.Pod{UID: "u", Name: "theirs"}
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, ours)
		tx.PutPod(coe.Kubernetes, theirs)
		tx.PutService(coe.Kubernetes, &coe.Service{UID: "s"})
		tx.PutEndpoints(coe.Kubernetes, &coe.Endpoints{UID: "e"})
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "n"})
	})
	require.Same(t, ours, pods.Get("u"))
	require.Equal(t, []state.Entity[coe.Pod]{{UID: "u", Value: theirs}}, s.PodsOf(coe.Kubernetes).All())
	require.NotNil(t, s.ServicesOf(coe.Kubernetes).Get("s"))
	require.NotNil(t, s.EndpointsOf(coe.Kubernetes).Get("e"))
	require.NotNil(t, s.NodesOf(coe.Kubernetes).Get("n"))
	require.Empty(t, s.NodesOf(coe.RESTCONF).All())
	require.Equal(t, "u", s.PodsOf(coe.Kubernetes).Any())
	require.Empty(t, s.NodesOf(coe.RESTCONF).Any())

	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "v"})
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "t"})
	})
	var uids []string
	for _, e := range pods.All() {
		uids = append(uids, e.UID)
	}
	require.Equal(t, []string{"t", "u", "v"}, uids)
	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.RESTCONF, "u") })
	require.Nil(t, pods.Get("u"))
}
