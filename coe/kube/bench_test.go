package kube

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/coe"
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
			tables := newTables(coe.NewStore(nil, coe.Kubernetes), func(PodSeen) {})
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
		tables := newTables(coe.NewStore(nil, coe.Kubernetes), nil)
		var entries []entry[pod]
		for from := 0; from < count; from += pageSize {
			entries = append(entries, page(b, tables, from)...)
		}
		tables.pods.replace(entries, 1)
		entries = nil
		b.ReportMetric(float64(heap()-before)/count, "B/pod")
		runtime.KeepAlive(tables)
		runtime.KeepAlive(entries)
	}
}

// page is a page of a list as the API server sends it, decoded and read.
func page(b *testing.B, t *tables, from int) []entry[pod] {
	sent := &corev1.PodList{}
	for i := range pageSize {
		sent.Items = append(sent.Items, *realPod(from + i))
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
