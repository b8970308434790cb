package state_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// namedRules returns rules about a named port.
func namedRules(n int) []coe.PolicyRule {
	rules := make([]coe.PolicyRule, n)
	for i := range rules {
		rules[i].Ports = []coe.PolicyPort{{Protocol: "tcp", Name: "http"}}
	}
	return rules
}

// peersIn returns rules with different peers in the namespaces that a selector selects.
func peersIn(namespaces *coe.Selector, from, to int) (rules []coe.PolicyRule) {
	for i := from; i < to; i++ {
		rules = append(rules, coe.PolicyRule{Peers: []coe.PolicyPeer{{Namespaces: namespaces, Pods: *selects("app", fmt.Sprint(i))}}})
	}
	return rules
}

// Policies that exceed a limit with those before them fail closed. The first ones keep their rules.
func TestPoliciesThatMultiply(t *testing.T) {
	ops := selects("name", "ops")
	manyPorts := &coe.Pod{UID: "many", Namespace: "shop", Name: "many", Ports: coe.NewContainerPorts(httpPorts(100)...)}
	for name, c := range map[string]struct {
		pod      *coe.Pod
		policies []*coe.PolicySpec
		want     map[string]string // by UID, a part of the message
	}{
		"rules times numbers": {manyPorts, []*coe.PolicySpec{
			policyOf("a", "shop", namedRules(200)...), policyOf("b", "shop", namedRules(50)...), policyOf("c", "shop", namedRules(47)...),
		}, map[string]string{"b": "25000 rules"}},
		"numbers of other namespaces": {&coe.Pod{UID: "many", Namespace: "ops", Name: "many", Ports: manyPorts.Ports}, []*coe.PolicySpec{
			policyOf("a", "shop", namedRules(200)...), policyOf("b", "shop", namedRules(200)...),
		}, map[string]string{}},
		"peers in other namespaces": {manyPorts, []*coe.PolicySpec{
			policyOf("a", "shop", peersIn(ops, 0, 250)...), policyOf("b", "shop", peersIn(ops, 200, 257)...), policyOf("c", "shop", peersIn(ops, 200, 256)...),
		}, map[string]string{"b": "256 different lists of peers"}},
		"peers in the own namespace": {manyPorts, []*coe.PolicySpec{policyOf("a", "shop", peersIn(nil, 0, 400)...)}, map[string]string{}},
		"two namespaces": {manyPorts, []*coe.PolicySpec{
			policyOf("a", "shop", peersIn(ops, 0, 200)...), policyOf("b", "bank", peersIn(ops, 200, 400)...),
		}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			store := state.NewStore(nil, coe.Kubernetes)
			store.Update(func(tx *state.Tx) {
				for _, p := range c.policies {
					tx.PutPolicy(coe.Kubernetes, p)
				}
				tx.PutPod(coe.Kubernetes, c.pod)
			})
			set := store.Cluster().PolicySet
			require.Len(t, set.Excess, len(c.want))
			for uid, message := range c.want {
				require.Contains(t, set.Excess[uid], message)
			}
			closed := coe.PolicySide{Isolates: true}
			for _, p := range set.Policies {
				if set.Excess[p.UID] != "" {
					require.Equal(t, []coe.PolicySide{closed, closed}, []coe.PolicySide{p.Ingress, p.Egress})
				} else {
					require.NotEmpty(t, p.Ingress.Rules)
				}
			}
			numbers := func(n coe.NamedPort) int {
				if n.Namespace == c.pod.Namespace && n.Name == "http" {
					return 100
				}
				return 0
			}
			require.Equal(t, set.Policies, coe.LimitPolicies(c.policies, numbers))
		})
	}
}

func httpPorts(n uint16) (ports []coe.ContainerPort) {
	for i := range n {
		ports = append(ports, tcp("http", i+1))
	}
	return ports
}

// If a policy is closed or opened by the change of another object, the namespaces of its peers are
// marked.
func TestClosedPolicyMarksItsPeers(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	var marked state.Changed
	step := func(change func(*state.Tx)) []string {
		s.Update(change)
		all := r.take()
		require.Len(t, all, 1)
		marked = all[0]
		return marked.Namespaces
	}
	small := &coe.Pod{UID: "p", Namespace: "shop", Name: "p", Ports: coe.NewContainerPorts(httpPorts(100)...)}
	rules := append(namedRules(150), peersIn(selects("name", "ops"), 0, 1)...)
	step(func(tx *state.Tx) {
		tx.PutNamespace(coe.Kubernetes, &coe.Namespace{UID: "ops", Name: "ops", Labels: label("name", "ops")})
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "o", Namespace: "ops", Name: "o"})
		tx.PutPolicy(coe.Kubernetes, policyOf("a", "shop", namedRules(150)...))
		tx.PutPolicy(coe.Kubernetes, policyOf("b", "shop", rules...))
	})
	require.Equal(t, []string{"ops", "shop"}, step(func(tx *state.Tx) { tx.PutPod(coe.Kubernetes, small) }), "the numbers of a pod close the policy")
	require.True(t, marked.Cluster)
	require.Contains(t, s.Cluster().PolicySet.Excess, "b")
	require.Equal(t, []string{"ops", "shop"}, step(func(tx *state.Tx) { tx.DeletePolicy(coe.Kubernetes, "a") }), "the policy before it is gone")
	require.Empty(t, s.Cluster().PolicySet.Excess)
	require.Equal(t, []string{"shop"}, step(func(tx *state.Tx) { tx.PutPolicy(coe.Kubernetes, policyOf("c", "shop", namedRules(150)...)) }),
		"the policy after it is closed, and has no peers")
	require.Contains(t, s.Cluster().PolicySet.Excess, "c")
	step(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "p") })
	require.Empty(t, s.Cluster().PolicySet.Excess)
}

// Tenants choose the numbers of named ports of their pods. Above a limit, a named port of an egress rule means
// only pods of the policy's namespace. The rest of the policy stays.
func TestNumbersOfOtherNamespaces(t *testing.T) {
	var r recorder
	s := state.NewStore(r.changed, coe.Kubernetes)
	egress := func(uid string, rules int) *coe.PolicySpec {
		p := policyOf(uid, "shop", namedRules(1)...)
		p.Egress = coe.PolicySide{Isolates: true, Rules: namedRules(rules)}
		return p
	}
	policies := []*coe.PolicySpec{egress("a", 24), egress("b", 2), egress("c", 1)}
	policies[1].Egress.Rules[1].Ports = append(policies[1].Egress.Rules[1].Ports, coe.PolicyPort{Protocol: "udp", First: 53, Last: 53})
	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "own", Namespace: "shop", Name: "own", Ports: coe.NewContainerPorts(tcp("http", 80))})
		for _, p := range policies {
			tx.PutPolicy(coe.Kubernetes, p)
		}
	})
	require.Empty(t, s.Cluster().PolicySet.Excess)
	r.take()

	s.Update(func(tx *state.Tx) {
		tx.PutPod(coe.Kubernetes, &coe.Pod{UID: "many", Namespace: "other", Name: "many", Ports: coe.NewContainerPorts(httpPorts(100)...)})
	})
	require.Equal(t, []string{"other", "shop"}, r.take()[0].Namespaces)
	set := s.Cluster().PolicySet
	require.Len(t, set.Excess, 1, "a policy after it may need less")
	require.Contains(t, set.Excess["b"], "more than 2500 numbers")
	require.Equal(t, policies[1].Ingress, set.Policies[1].Ingress)
	own := coe.PolicyPort{Protocol: "tcp", Name: "http", Namespace: "shop"}
	require.Equal(t, []coe.PolicyRule{{Ports: []coe.PolicyPort{own}}, {Ports: []coe.PolicyPort{own, {Protocol: "udp", First: 53, Last: 53}}}}, set.Policies[1].Egress.Rules)
	require.Equal(t, set.Policies, coe.LimitPolicies(policies, func(n coe.NamedPort) int {
		return map[coe.NamedPort]int{{Name: "http", Protocol: "tcp"}: 100, {Name: "http", Protocol: "tcp", Namespace: "shop"}: 1}[n]
	}))

	s.Update(func(tx *state.Tx) { tx.DeletePod(coe.Kubernetes, "many") })
	require.Empty(t, s.Cluster().PolicySet.Excess)
	require.Contains(t, r.take()[0].Namespaces, "shop")
}
