package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// spec describes a cluster. Its pods and policies have numbers.
type spec struct {
	load     kube.PodLoad
	labels   func(pod int) map[string]string
	policies int
	policy   func(i int) networkingv1.NetworkPolicy
}

// cluster is a synthetic cluster, and the folder of its bridge.
type cluster struct {
	spec
	api       *synthapi.API
	pods      *synthapi.Resource[corev1.Pod]
	policies  *synthapi.Resource[networkingv1.NetworkPolicy]
	relabeled sync.Map // changed labels, by number of the pod
	dir       string
}

func (b *bench) newCluster(s spec) (*cluster, error) {
	dir, err := b.Folder("cluster")
	if err != nil {
		return nil, err
	}
	c := &cluster{spec: s, dir: dir}
	if c.api, err = synthapi.Serve(dir); err != nil {
		return nil, err
	}
	synthapi.Add(c.api, synthapi.Namespaces, s.load.Namespaces, synthapi.Namespace)
	synthapi.Add(c.api, synthapi.Nodes, s.load.Nodes, synthapi.Node)
	c.pods = synthapi.Add(c.api, synthapi.Pods, s.load.Count, c.pod)
	c.policies = synthapi.Add(c.api, synthapi.Policies, s.policies, s.policy)
	synthapi.Add(c.api, synthapi.ServiceCIDRs, 0, nil)
	synthapi.Add(c.api, synthapi.Services, 0, nil)
	synthapi.Add(c.api, synthapi.EndpointSlices, 0, nil)
	return c, nil
}

func (c *cluster) pod(i int) corev1.Pod {
	p := c.api.Pod(c.load, i)
	if labels, found := c.relabeled.Load(i); found {
		p.Labels = labels.(map[string]string)
	} else if c.labels != nil {
		p.Labels = c.labels(i)
	}
	return p
}

// follow waits until a bridge has written the cluster, and watches what can change.
func (c *cluster) follow(ctx context.Context, br *process.Bridge) error {
	if _, err := br.AwaitSync(ctx, c.load.Count); err != nil {
		return err
	}
	if err := c.api.AwaitAnnotations(ctx, c.load.Count); err != nil {
		return err
	}
	if err := c.pods.AwaitWatch(ctx); err != nil {
		return err
	}
	return c.policies.AwaitWatch(ctx)
}

// networkPolicy returns a policy with a number, in the namespace with a number.
func networkPolicy(i, namespace int, s networkingv1.NetworkPolicySpec) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{
		ObjectMeta: synthapi.Meta(metav1.ObjectMeta{Namespace: kube.Namespace(namespace), Name: fmt.Sprintf("policy-%d", i)}, "8006", i),
		Spec:       s,
	}
}

// podsWith returns the peer of all pods of the policy's namespace with a label.
func podsWith(key, value string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: selector(key, value)}
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func tcp(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}
}

// The large cluster has 20 namespaces with 500 pods and 50 policies each. Policy k of a namespace selects a
// tenth of its pods. It allows a fiftieth of them, and those with the role client-k. Each fifth policy
// allows the pods of all namespaces.
const (
	largeNamespaces = 20
	largePods       = 10_000
	largePolicies   = 1000
)

func large() spec {
	return spec{
		load:     kube.PodLoad{Count: largePods, Namespaces: largeNamespaces, Nodes: 10},
		policies: largePolicies,
		labels: func(i int) map[string]string {
			n := i / largeNamespaces
			return map[string]string{"app": fmt.Sprintf("app-%d", n%10), "group": fmt.Sprintf("group-%d", n%50)}
		},
		policy: func(i int) networkingv1.NetworkPolicy {
			k := i / largeNamespaces
			peers := []networkingv1.NetworkPolicyPeer{podsWith("group", fmt.Sprintf("group-%d", k)), podsWith("role", client(k))}
			if ofAll(k) {
				for n := range peers {
					peers[n].NamespaceSelector = &metav1.LabelSelector{}
				}
			}
			return networkPolicy(i, i%largeNamespaces, networkingv1.NetworkPolicySpec{
				PodSelector: *selector("app", fmt.Sprintf("app-%d", k%10)),
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: []networkingv1.NetworkPolicyPort{tcp(8080)}}},
			})
		},
	}
}

// ofAll reports whether policy k of each namespace of the large cluster allows the pods of all namespaces.
func ofAll(k int) bool { return k%5 == 4 }

func client(k int) string { return fmt.Sprintf("client-%d", k) }
