package mapping_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Pods of another namespace do not make rules about named ports of a namespace's own pods larger.
func TestNamedPortsOfOtherNamespaces(t *testing.T) {
	http := func(number uint16) coe.ContainerPort {
		return coe.ContainerPort{Name: "http", Protocol: "tcp", Port: number}
	}
	var others []coe.ContainerPort
	for i := range uint16(1000) {
		others = append(others, http(i+1))
	}
	v := view()
	own := addPod(&v, uid1, "busybox1", "10.11.2.28")
	own.Ports = coe.NewContainerPorts(http(8080))
	rules := coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Peers: []coe.PolicyPeer{{}}, Ports: []coe.PolicyPort{{Protocol: "tcp", Name: "http"}}}}}
	store := coe.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *coe.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.PutPod(coe.Kubernetes, own)
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "other", Namespace: "other", Name: "other", Ports: coe.NewContainerPorts(others...)})
		tx.PutPolicy(coe.Kubernetes, &coe.PolicySpec{
			Policy: coe.Policy{UID: "p", Namespace: "default", Name: "p", Kind: coe.NetworkPolicy}, Ingress: rules, Egress: rules,
		})
	})
	v.PolicySet = store.Cluster().PolicySet
	got, problems := mapping.Map(v, settings)
	require.Empty(t, problems)
	var named []netvirt.PortList
	for _, o := range got {
		if ace, is := o.(netvirt.ACE); is && ace.Ports != "" {
			named = append(named, ace.Ports)
		}
	}
	require.Equal(t, []netvirt.PortList{"tcp:8080", "tcp:8080"}, named)
}
