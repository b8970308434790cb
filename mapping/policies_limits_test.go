package mapping_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
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

// A policy that exceeds a limit for its namespace is a problem, and has no rules in the model and in the
// answers of mapping/policy.
func TestPolicyAboveALimitOfItsNamespace(t *testing.T) {
	store := coe.NewStore(nil, coe.Kubernetes)
	var policies []*coe.PolicySpec
	for i := range 2 {
		p := &coe.PolicySpec{Policy: coe.Policy{UID: fmt.Sprint("p", i), Namespace: "default", Name: fmt.Sprint("p", i), Kind: coe.NetworkPolicy}}
		p.Ingress.Isolates = true
		for rule := range 200 {
			p.Ingress.Rules = append(p.Ingress.Rules, coe.PolicyRule{Peers: []coe.PolicyPeer{{Namespaces: &coe.Selector{}, Pods: coe.Selector{
				Requirements: []coe.Requirement{{Key: fmt.Sprintf("k%d-%d", i, rule), Operator: coe.DoesNotExist}},
			}}}})
		}
		policies = append(policies, p)
	}
	v := view()
	pod := addPod(&v, uid1, "busybox1", "10.11.2.28")
	store.Update(func(tx *coe.Tx) {
		tx.SetComplete(coe.Kubernetes)
		tx.PutPod(coe.Kubernetes, pod)
		for _, p := range policies {
			tx.PutPolicy(coe.Kubernetes, p)
			v.Policies = append(v.Policies, &p.Policy)
		}
	})
	v.PolicySet = store.Cluster().PolicySet
	got, problems := mapping.Map(v, settings)
	require.Len(t, problems, 1)
	require.Equal(t, coe.TooLarge, problems[0].Reason)
	require.Equal(t, "p1", problems[0].UID)
	require.Contains(t, problems[0].Message, "256 different lists of peers")
	cluster, _ := mapping.Cluster(store.Cluster(), settings)
	groups := 0
	for k := range cluster {
		if k.Kind == netvirt.KindRemoteGroup {
			groups++
		}
	}
	require.Equal(t, 200, groups)
	for k := range got {
		require.False(t, k.Kind == netvirt.KindACE && strings.Contains(k.Name, "ingress:p1:"), k)
	}

	judge := policy.Compile(policy.World{Pods: []policy.Pod{{Namespace: "default", Name: "busybox1"}}, Policies: policies})
	ends, found := judge.Pod("default", "busybox1")
	require.True(t, found)
	var rules []int
	for _, p := range ends[0].Policies(coe.Ingress) {
		rules = append(rules, len(p.Ingress.Rules))
	}
	require.Equal(t, []int{200, 0}, rules)
	require.Len(t, ends[0].Policies(coe.Egress), 1, "a closed policy isolates in both directions")
}
