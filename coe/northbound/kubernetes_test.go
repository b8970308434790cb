package northbound_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Entities of RESTCONF are not shown.
func TestFromKubernetes(t *testing.T) {
	store := state.NewStore(nil, coe.RESTCONF, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		tx.PutPod(coe.RESTCONF, &coe.Pod{UID: "a", Name: "ours"})
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "b", Name: "web", Namespace: "shop"})
		tx.PutService(coe.Kubernetes, &coe.Service{UID: "c", Name: "web", Namespace: "shop"})
		tx.PutEndpoints(coe.Kubernetes, &coe.Endpoints{UID: "d", Name: "web", Namespace: "shop"})
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "e", HostName: "n1"})
	})
	pods := northbound.KubernetesPods(store)
	require.Nil(t, pods.Entry("a"))
	require.Empty(t, pods.Says("a"))
	require.Equal(t, `{"uid":"b","name":"web","network-NS":"shop"}`, string(pods.Entry("b")))
	for says, want := range map[string]string{
		pods.Says("b"): "pod shop/web",
		northbound.KubernetesServices(store).Says("c"):  "service shop/web",
		northbound.KubernetesEndpoints(store).Says("d"): "endpoints of service shop/web",
		northbound.KubernetesNodes(store).Says("e"):     "node n1",
	} {
		require.Equal(t, "it comes from Kubernetes ("+want+"): change it there with kubectl", says)
	}
}

// Returned entries never change, regardless of their number and size.
func TestEntriesShareNothing(t *testing.T) {
	const many = 1000
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		for i := range many {
			uid := fmt.Sprintf("%04d", i)
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: uid, Name: strings.Repeat("x", i)})
		}
	})
	pods := northbound.KubernetesPods(store)
	var uids []string
	var raws [][]byte
	for uid, raw := range pods.Entries() {
		require.Equal(t, len(raw), cap(raw))
		uids, raws = append(uids, uid), append(raws, raw)
	}
	require.Len(t, uids, many)
	require.IsIncreasing(t, uids)
	for i, uid := range uids {
		require.Equal(t, string(pods.Entry(uid)), string(raws[i]))
	}
	require.Contains(t, uids, pods.Any())
	for range pods.Entries() {
		break
	}
}
