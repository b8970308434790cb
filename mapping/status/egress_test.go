package status_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/status"
)

// A pod that two EgressIPs select counts for the first one. An EgressIP without a node waits.
func TestEgressIPs(t *testing.T) {
	node, address := netip.MustParseAddr("192.168.33.11"), netip.MustParseAddr("192.168.33.200")
	store := state.NewStore(nil, coe.Kubernetes)
	require.Empty(t, status.EgressIPsOf(store))
	web := coe.Selector{Requirements: []coe.Requirement{{Key: "app", Operator: coe.In, Values: []string{"web"}}}}
	store.Update(func(tx *state.Tx) {
		tx.PutNode(coe.Kubernetes, &coe.Node{UID: "n", HostName: "node1", InternalIP: node, Egress: true})
		for uid, app := range map[string]string{"a": "web", "b": "db", "c": "db"} {
			tx.PutPod(coe.Kubernetes, &coe.Pod{UID: uid, Name: uid, Namespace: "shop", HostIP: node, Labels: coe.NewLabels(map[string]string{"app": app})})
		}
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "h", Name: "h", Namespace: "shop", HostIP: node, NoNetwork: true})
		tx.SetEgress([]*coe.EgressIP{
			{Name: "all", Number: 2}, {Name: "web", Number: 1, Address: address, Pods: web, Hosts: [2]netip.Addr{node}, Active: 1, Owner: 1},
		}, nil)
	})
	require.Equal(t, []status.EgressIP{
		{Name: "all", State: coe.EgressWaiting, Candidates: []string{"node1"}, Pods: 2},
		{Name: "web", Address: address, State: coe.EgressHeld, Node: node, NodeName: "node1", Candidates: []string{"node1"}, Pods: 1},
	}, status.EgressIPsOf(store).EgressIPs)
}
