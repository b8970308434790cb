package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// labels returns the labels of a pod: it is one of ten applications of its namespace, and in one of fifty groups.
func labels(i int) map[string]string {
	n := i / namespaces
	return map[string]string{"app": fmt.Sprintf("app-%d", n%namespaceApps), "group": fmt.Sprintf("group-%d", n%namespaceGroups)}
}

// policy returns the policy with a number. It selects an application of its namespace, and allows a group. Each fifth policy allows the
// group in all namespaces.
func policy(i int) networkingv1.NetworkPolicy {
	k := i / namespaces
	peer := networkingv1.NetworkPolicyPeer{PodSelector: selector("group", fmt.Sprintf("group-%d", k%namespaceGroups))}
	if k%5 == 4 {
		peer.NamespaceSelector = &metav1.LabelSelector{}
	}
	return networkingv1.NetworkPolicy{
		ObjectMeta: synthapi.Meta(metav1.ObjectMeta{Namespace: kube.Namespace(i % namespaces), Name: fmt.Sprintf("policy-%d", i)}, "8006", i),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selector("app", fmt.Sprintf("app-%d", k%namespaceApps)),
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{peer},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(8080))}},
			}},
		},
	}
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}
