package mapping_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
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
	v := synth.OneNode()
	own := synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	own.Ports = coe.NewContainerPorts(http(8080))
	rules := coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Peers: []coe.PolicyPeer{{}}, Ports: []coe.PolicyPort{{Protocol: "tcp", Name: "http"}}}}}
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
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
	store := state.NewStore(nil, coe.Kubernetes)
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
	v := synth.OneNode()
	pod := synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	store.Update(func(tx *state.Tx) {
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

// Above the limit for numbers of other namespaces, a named port of an egress rule has the pods of the
// policy's namespace alone, in the model and in the answers of mapping/policy.
func TestNamedPortsAboveTheLimitOfOthers(t *testing.T) {
	http := coe.ContainerPort{Name: "http", Protocol: "tcp", Port: 8080}
	var pods []*coe.Pod
	world := policy.World{}
	for _, namespace := range []string{"default", "other"} {
		pods = append(pods, &coe.Pod{UID: namespace, Namespace: namespace, Name: "busybox1", Ports: coe.NewContainerPorts(http)})
		world.Pods = append(world.Pods, policy.Pod{Namespace: namespace, Name: "busybox1", Ports: []coe.ContainerPort{http}})
	}
	for i := range 25 {
		many := make([]coe.ContainerPort, 101)
		for n := range many {
			many[n] = coe.ContainerPort{Name: "http", Protocol: "tcp", Port: uint16(101*i + n + 1)}
		}
		pods = append(pods, &coe.Pod{UID: fmt.Sprint("many", i), Namespace: "other", Name: fmt.Sprint("many", i), Ports: coe.NewContainerPorts(many...)})
		world.Pods = append(world.Pods, policy.Pod{Namespace: "other", Name: fmt.Sprint("many", i), Ports: many})
	}
	p := &coe.PolicySpec{
		Policy: coe.Policy{UID: "p", Namespace: "default", Name: "p", Kind: coe.NetworkPolicy},
		Egress: coe.PolicySide{Isolates: true, Rules: []coe.PolicyRule{{Ports: []coe.PolicyPort{{Protocol: "tcp", Name: "http"}}}}},
	}
	world.Policies = []*coe.PolicySpec{p}
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(func(tx *state.Tx) {
		tx.SetComplete(coe.Kubernetes)
		for _, pod := range pods {
			tx.PutPod(coe.Kubernetes, pod)
		}
		tx.PutPolicy(coe.Kubernetes, p)
	})
	v := synth.OneNode()
	synth.AddPod(&v, uid1, "busybox1", "10.11.2.28")
	v.PolicySet, v.Policies = store.Cluster().PolicySet, []*coe.Policy{&p.Policy}
	got, problems := mapping.Map(v, settings)
	require.Len(t, problems, 1)
	require.Equal(t, coe.TooLarge, problems[0].Reason)
	require.Contains(t, problems[0].Message, "use numbers instead of names")
	cluster, _ := mapping.Cluster(store.Cluster(), settings)
	rules := 0
	for _, o := range got {
		if ace, is := o.(netvirt.ACE); is && ace.Ports != "" {
			rules++
			require.Equal(t, netvirt.PortList("tcp:8080"), ace.Ports)
			group := cluster[netvirt.RemoteGroup{Name: ace.Remote}.Key()].(netvirt.RemoteGroup)
			require.Equal(t, "default", group.Namespace)
		}
	}
	require.Equal(t, 1, rules)

	judge := policy.Compile(world)
	end := func(namespace string) policy.End {
		ends, _ := judge.Pod(namespace, "busybox1")
		return ends[0]
	}
	ports := judge.OpenPorts(end("default"), end("other"))
	require.Empty(t, ports)
	require.False(t, judge.Allowed(end("default"), end("other"), policy.Port{Protocol: "tcp", Number: 8080}))
	world.Pods = append(world.Pods, policy.Pod{Namespace: "default", Name: "db", Ports: []coe.ContainerPort{http}})
	judge = policy.Compile(world)
	db, _ := judge.Pod("default", "db")
	require.True(t, judge.Allowed(end("default"), db[0], policy.Port{Protocol: "tcp", Number: 8080}))
}
