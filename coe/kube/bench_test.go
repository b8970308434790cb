package kube

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// realPod is a pod of the size that a Deployment's have.
func realPod(i int) *corev1.Pod {
	text := strings.Repeat("x", 60)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:       types.UID(fmt.Sprintf("b498b7ae-4cbd-3563-b75d-%012x", i)),
			Namespace: fmt.Sprintf("namespace-%d", i%20), Name: fmt.Sprintf("deployment-5d5b8c7f9d-%05d", i),
			ResourceVersion: fmt.Sprint(100000 + i),
			Labels:          map[string]string{"app": "web", "pod-template-hash": "5d5b8c7f9d"},
			Annotations:     map[string]string{InterfacesAnnotation: strings.Repeat(text, 4)},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: &metav1.FieldsV1{Raw: []byte(strings.Repeat(text, 15))}}},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%1000)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.168.33.12", PodIPs: []corev1.PodIP{{IP: "10.11.2.28"}}},
	}
	for range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "main", Image: text, Args: []string{text, text}})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Message: text})
	}
	return p
}

// BenchmarkPodEvent is what an event of a pod costs from the decoded object on.
func BenchmarkPodEvent(b *testing.B) {
	for name, podOf := range map[string]func(i int) *corev1.Pod{
		"changed": func(i int) *corev1.Pod {
			p := realPod(i % 1000)
			p.Status.PodIPs[0].IP = fmt.Sprintf("10.11.%d.%d", i/1000%250, i%250)
			return p
		},
		"heartbeat": func(i int) *corev1.Pod { return realPod(i % 1000) },
	} {
		b.Run(name, func(b *testing.B) {
			tables := newTables(Config{Store: state.NewStore(nil, coe.Kubernetes), Observe: func(PodSeen) {}})
			pods := make([]*corev1.Pod, 20000)
			for i := range pods {
				pods[i] = podOf(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				require.NoError(b, tables.pods.apply(pods[i%len(pods)], false))
			}
		})
	}
}

// BenchmarkPodMemory lists 50,000 pods from the pages in which they come, and
// reports what of the heap each holds after.
func BenchmarkPodMemory(b *testing.B) {
	const count = 50000
	for b.Loop() {
		before := heap()
		tables := newTables(Config{Store: state.NewStore(nil, coe.Kubernetes)})
		var entries []entry[pod]
		for from := 0; from < count; from += pageSize {
			entries = append(entries, page(b, tables, from, realPod)...)
		}
		tables.pods.replace(entries, 1)
		entries = nil
		b.ReportMetric(float64(heap()-before)/count, "B/pod")
		runtime.KeepAlive(tables)
		runtime.KeepAlive(entries)
	}
}

// BenchmarkPolicyMemory reports what labels, named ports and 1,000 policies add to the heap of a
// Store with 50,000 pods in 200 namespaces. The labels of the pods are shared by a Deployment of 20,
// or each pod has labels of its own, like pods of StatefulSets and Jobs.
func BenchmarkPolicyMemory(b *testing.B) {
	const count, policies, namespaces = 50000, 1000, 200
	for name, share := range map[string]int{"deployments": 20, "own labels": 1} {
		b.Run(name, func(b *testing.B) {
			// held returns the heap of a Store with pods, and with policies if there are any.
			held := func(policies int, podOf func(i int) *corev1.Pod) float64 {
				before := heap()
				tables := newTables(Config{Store: state.NewStore(nil, coe.Kubernetes)})
				var entries []entry[pod]
				for from := 0; from < count; from += pageSize {
					entries = append(entries, page(b, tables, from, podOf)...)
				}
				tables.pods.replace(entries, 1)
				for i := range min(policies, namespaces) {
					n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i), UID: types.UID(namespaceOf(i)), Labels: map[string]string{
						corev1.LabelMetadataName: namespaceOf(i), "team": fmt.Sprint("team-", i%10),
					}}}
					require.NoError(b, tables.namespaces.apply(n, false))
				}
				for i := range policies {
					require.NoError(b, tables.policies.apply(realPolicy(i), false))
				}
				require.Len(b, tables.store.Cluster().PolicySet.Policies, policies)
				entries = nil
				after := heap()
				runtime.KeepAlive(tables)
				runtime.KeepAlive(entries)
				return float64(after-before) / 1e6
			}
			for b.Loop() {
				without := held(0, func(i int) *corev1.Pod {
					p := realPod(i)
					p.Namespace, p.Labels = namespaceOf(i%namespaces), nil
					return p
				})
				with := held(policies, func(i int) *corev1.Pod {
					p := realPod(i)
					p.Namespace = namespaceOf(i % namespaces)
					p.Labels = map[string]string{
						"app.kubernetes.io/name": fmt.Sprint("service-", i/share%50), "app.kubernetes.io/instance": fmt.Sprint("instance-", i/share),
						"app.kubernetes.io/version": "1.24.3", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": fmt.Sprintf("%010x", i/share),
					}
					p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: int32(9000 + i%100)}}
					return p
				})
				b.ReportMetric(without, "MB-without")
				b.ReportMetric(with-without, "MB-more")
			}
		})
	}
}

func namespaceOf(i int) string { return fmt.Sprintf("namespace-%d", i) }

// realPolicy is a policy of the size that people write: two peers that are pods, a block without
// two parts, a port number and a named port.
func realPolicy(i int) *networkingv1.NetworkPolicy {
	labels := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	app := labels("app.kubernetes.io/name", fmt.Sprint("service-", i%50))
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("policy-", i)), Name: fmt.Sprint("policy-", i), Namespace: namespaceOf(i % 200)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *app,
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: app},
					{NamespaceSelector: labels("team", fmt.Sprint("team-", i%10)), PodSelector: labels("app.kubernetes.io/name", "gateway")},
				},
				Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(8080))}, {Port: new(intstr.FromString("metrics"))}},
			}},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
				{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.2.0.0/16"}}},
			}}},
		},
	}
}

// page is a page of a list as the API server sends it, decoded and read.
func page(b *testing.B, t *tables, from int, podOf func(i int) *corev1.Pod) []entry[pod] {
	sent := &corev1.PodList{}
	for i := range pageSize {
		sent.Items = append(sent.Items, *podOf(from + i))
	}
	wire, err := sent.Marshal()
	require.NoError(b, err)
	var list corev1.PodList
	require.NoError(b, list.Unmarshal(wire))
	var entries []entry[pod]
	for i := range list.Items {
		e, err := t.pods.read(&list.Items[i], false)
		require.NoError(b, err)
		entries = append(entries, e)
	}
	return entries
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
