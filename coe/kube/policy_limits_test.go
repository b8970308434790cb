package kube_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// A policy above a limit isolates its pods and allows nothing. The policy just below is enforced.
func TestPoliciesThatMultiply(t *testing.T) {
	values := func(n, length int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%0*d", length, i))
		}
		return all
	}
	in := func(n, length int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: values(n, length)}}}
	}
	rules := func(n int, r networkingv1.NetworkPolicyIngressRule) (s networkingv1.NetworkPolicySpec) {
		for range n {
			s.Ingress = append(s.Ingress, r)
		}
		return s
	}
	rule := func(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}}
	}
	except := func(cidr, format string, n int) networkingv1.NetworkPolicyIngressRule {
		block := &networkingv1.IPBlock{CIDR: cidr}
		for i := range n {
			block.Except = append(block.Except, fmt.Sprintf(format, i))
		}
		return rule(networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	ports := func(n int) networkingv1.NetworkPolicyIngressRule {
		var r networkingv1.NetworkPolicyIngressRule
		for i := range n {
			r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt32(int32(i + 1)))})
		}
		return r
	}
	const most = coe.MaxPolicyEntries
	for name, of := range map[string]struct {
		within, above networkingv1.NetworkPolicySpec
	}{
		"rules":        {rules(most, ports(0)), rules(most+1, ports(0))},
		"ports":        {rules(1, ports(most-1)), rules(1, ports(most))},
		"except":       {rules(1, except("0.0.0.0/0", "10.0.%d.0/24", 100)), rules(1, except("0.0.0.0/0", "10.0.%d.0/24", 105))},
		"IPv6 except":  {rules(1, except("::/0", "fd00::%d/128", 9)), rules(1, except("::/0", "fd00::%d/128", 10))},
		"values":       {rules(1, rule(networkingv1.NetworkPolicyPeer{PodSelector: in(most-3, 5)})), rules(1, rule(networkingv1.NetworkPolicyPeer{PodSelector: in(most-2, 5)}))},
		"text":         {rules(1, rule(networkingv1.NetworkPolicyPeer{NamespaceSelector: in(1040, 63)})), rules(1, rule(networkingv1.NetworkPolicyPeer{NamespaceSelector: in(1041, 63)}))},
		"pod selector": {networkingv1.NetworkPolicySpec{PodSelector: *in(1040, 63)}, networkingv1.NetworkPolicySpec{PodSelector: *in(1041, 63)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, kube.Policy(&networkingv1.NetworkPolicy{Spec: of.within}).Invalid)
			got := kube.Policy(&networkingv1.NetworkPolicy{Spec: of.above})
			require.Contains(t, got.Invalid, "split the policy")
			closed := coe.PolicySide{Isolates: true}
			require.Equal(t, []coe.PolicySide{closed, closed}, []coe.PolicySide{got.Ingress, got.Egress})
			require.Empty(t, got.Pods, "it also selects all pods if the selector is too large")
		})
	}
}

// A pod has at most MaxNamedPorts ports with names, although its containers may have more.
func TestPodWithManyNamedPorts(t *testing.T) {
	var in corev1.Pod
	for i := range 2 * coe.MaxNamedPorts {
		in.Spec.Containers = append(in.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(i + 1)}}})
	}
	n := 0
	for range kube.Pod(&in).Ports.All() {
		n++
	}
	require.Equal(t, coe.MaxNamedPorts, n)
}
