package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// create creates the first pod of a load, and returns the created pod.
func (w *world) create(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	p := kubetest.PodLoad{}.Pod(0)
	p.Name, p.Spec.NodeName = name, node
	p, err := w.Client().CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	return p
}

// remove deletes pods of the first namespace.
func (w *world) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, w.Client().CoreV1().Pods(kubetest.Namespace(0)).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// described fails unless kubectl describe shows an Event of the pod with all of the words in one line.
func (w *world) described(t *testing.T, pod string, words ...string) error {
	t.Helper()
	out, err := w.Kubectl(t.Context(), "describe", "pod", "--namespace="+kubetest.Namespace(0), pod)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no line with %q in: %s", words, out)
}

// testNoNode has a pod without a node, and a pod whose node does not exist.
func testNoNode(t *testing.T, w *world, b running) {
	waiting := w.create(t, "waiting", "")
	w.create(t, "lost", "node-9")
	await(t, converge, "status", func() error { return b.hasProblem("waiting", "NoNode") })
	await(t, converge, "status", func() error { return b.hasProblem("lost", "NoNode") })
	require.Contains(t, b.problem("lost").Message, "the pod's node node-9 is not known")
	await(t, converge, "Event", func() error { return w.described(t, "lost", "Warning", "NoNode", "coe-bridge", "node-9 is not known") })
	require.Error(t, w.described(t, "waiting", "NoNode"), "the scheduler reports pods without a node")

	require.NoError(t, w.Client().CoreV1().Pods(waiting.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "waiting", Namespace: waiting.Namespace},
		Target:     corev1.ObjectReference{Kind: "Node", Name: kubetest.Node(0)},
	}, metav1.CreateOptions{}))
	require.NoError(t, w.makeNode(t.Context(), 9, ""))
	w.awaitExact(t, b, converge)
	require.Nil(t, b.problem("waiting"))
	require.Nil(t, b.problem("lost"))
	await(t, converge, "Event", func() error { return w.described(t, "lost", "Normal", "Mapped", "coe-bridge") })

	w.remove(t, "waiting", "lost")
	w.removeNodes(t, 9, 10)
	w.awaitExact(t, b, converge)
}

// testAnnotation changes the annotation of a pod, and removes the annotation of another pod.
func testAnnotation(t *testing.T, w *world, b running) {
	const changed, removed = "changed", "removed"
	w.create(t, changed, kubetest.Node(0))
	w.create(t, removed, kubetest.Node(1))
	w.awaitExact(t, b, converge)
	before := w.lines(t)
	for name, value := range map[string]string{changed: `"[{\"name\":\"mine\",\"ips\":[\"192.0.2.1/24\"]}]"`, removed: "null"} {
		_, err := w.Client().CoreV1().Pods(kubetest.Namespace(0)).Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"coe-bridge.io/interfaces":%s}}}`, value), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	w.awaitExact(t, b, converge)
	require.ElementsMatch(t, before, w.lines(t), "annotations do not change the network")
	for _, name := range []string{changed, removed} {
		await(t, converge, "Event", func() error { return w.described(t, name, "AnnotationRestored", "coe-bridge", "has been restored") })
	}
	w.remove(t, changed, removed)
	w.awaitExact(t, b, converge)
}

// testPostedOverlap posts a pool that overlaps the one of the settings.
func testPostedOverlap(t *testing.T, _ *world, b running) {
	answer := b.putPool(t, http.StatusBadRequest, "ns-1", "10.32.8.0/24", "")
	require.Contains(t, answer, "overlap")
	require.Contains(t, answer, podPool.String())
	b.putPool(t, http.StatusCreated, "ns-1", "10.50.0.0/24", "")
	b.send(t, http.StatusOK, http.MethodDelete, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/ns-1", "")
}

// testExhausted creates more pods than the pool has addresses, and then enlarges the pool.
func testExhausted(t *testing.T, w *world) {
	w.newBackend(t)
	b := w.serve(t, withPools(t))
	b.putPool(t, http.StatusCreated, "default", "10.60.0.0/29", "")
	load := kubetest.PodLoad{Count: 8, Nodes: 1, Prefix: "many-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	var refused []problem
	await(t, converge, "the pool is exhausted", func() error {
		refused = nil
		for _, p := range b.status().Problems {
			if p.Reason == "PoolExhausted" && p.Kind == "pod" {
				refused = append(refused, p)
			}
		}
		if len(refused) != 3 || len(b.living()) != 5 {
			return fmt.Errorf("%d refused, %d served", len(refused), len(b.living()))
		}
		return b.inSync()
	})
	require.Contains(t, refused[0].Message, "dhcp_allocation_pool")
	await(t, converge, "Event", func() error { return w.described(t, refused[0].Name, "Warning", "PoolExhausted", "10.60.0.0/29") })

	before := w.podAddresses(t)
	b.putPool(t, http.StatusOK, "default", "10.60.0.0/24", "")
	w.awaitExact(t, b, converge)
	require.Empty(t, b.status().Problems)
	after := w.podAddresses(t)
	for name, address := range before {
		require.Equal(t, address, after[name], "address of %s, which it had before", name)
	}
	await(t, converge, "Event", func() error { return w.described(t, refused[0].Name, "Normal", "Mapped") })
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	b.Stop()
}

// testNodePools: pods get their addresses from the podCIDRs of their nodes. One of the podCIDRs overlaps
// the pool of the settings.
func testNodePools(t *testing.T, w *world) {
	w.newBackend(t)
	for i, cidr := range []string{"10.61.1.0/24", "10.32.7.0/24"} {
		require.NoError(t, w.makeNode(t.Context(), 10+i, cidr))
	}
	b := w.serve(t, func(cfg *bridge.Config) { cfg.NodePools = true })
	good, bad := w.create(t, "good", kubetest.Node(10)), w.create(t, "bad", kubetest.Node(11))
	w.awaitExact(t, b, converge)
	require.NoError(t, b.hasProblem(kubetest.Node(11), "PoolOverlaps"))
	require.Contains(t, b.problem(kubetest.Node(11)).Message, "10.32.7.0/24")
	require.Contains(t, w.annotation(t, good.Name), "10.61.1.")
	require.Contains(t, w.annotation(t, bad.Name), "10.32.", "an address of the default pool")
	w.remove(t, "good", "bad")
	w.removeNodes(t, 10, 12)
	w.awaitExact(t, b, converge)
	require.Empty(t, b.status().Problems)
	b.Stop()
}

// annotation returns the first address in the annotation of a pod of the first namespace.
func (w *world) annotation(t *testing.T, pod string) string {
	t.Helper()
	p, err := w.Client().CoreV1().Pods(kubetest.Namespace(0)).Get(t.Context(), pod, metav1.GetOptions{})
	require.NoError(t, err)
	var said []annotation
	require.NoError(t, json.Unmarshal([]byte(p.Annotations["coe-bridge.io/interfaces"]), &said))
	require.NotEmpty(t, said)
	return said[0].IPs[0].String()
}
