package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// living returns the leases that are not released.
func (r running) living() []lease {
	var out []lease
	for _, l := range r.leases() {
		if l.Released == "" {
			out = append(out, l)
		}
	}
	return out
}

// deletePods deletes count pods.
func (w *world) deletePods(t *testing.T, count int, pod func(i int) *corev1.Pod) {
	t.Helper()
	_, err := kubetest.Each(t.Context(), count, kubetest.Workers, func(ctx context.Context, i int) error {
		return w.deletePod(ctx, pod(i))
	})
	require.NoError(t, err)
}

// deletePod deletes a pod. If the pod is patched during its deletion, the patch can complete the
// deletion, and the API server answers that the pod does not exist.
func (w *world) deletePod(ctx context.Context, p *corev1.Pod) error {
	err := w.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// recreatePod deletes the pod of a name, and creates another one. Both requests are repeated if the API
// server answers that the pod has changed or still exists: a patch that is under way can be the cause.
func (w *world) recreatePod(ctx context.Context, p *corev1.Pod) error {
	isPassing := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	if err := retry.OnError(retry.DefaultBackoff, isPassing, func() error { return w.deletePod(ctx, p) }); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	return retry.OnError(retry.DefaultBackoff, isPassing, func() error {
		_, err := w.Client().CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
}

// restorePods creates pods that recreatePod has created and that do not exist: a patch that completes the deletion of a pod
// deletes by the name, and can delete the next pod of that name.
func (w *world) restorePods(t *testing.T, b running, count int, pod func(i int) *corev1.Pod) {
	t.Helper()
	restored := 0
	for i := range count {
		p := pod(i)
		_, err := w.Client().CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err == nil {
			restored++
		} else {
			require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		}
	}
	if restored > 0 {
		t.Logf("%d pods were deleted with those before them", restored)
		w.awaitExact(t, b, converge)
	}
}

// label adds a label to a pod.
func (w *world) label(ctx context.Context, p *corev1.Pod) error {
	_, err := w.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"at-%d"}}}`, time.Now().UnixNano()), metav1.PatchOptions{})
	return err
}

// makeNode creates the node of a number, with a podCIDR if that is not empty.
func (w *world) makeNode(ctx context.Context, i int, podCIDR string) error {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: kubetest.Node(i)},
		Spec:       corev1.NodeSpec{PodCIDR: podCIDR},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: kubetest.NodeAddress(i).String()},
		}},
	}
	if podCIDR != "" {
		n.Spec.PodCIDRs = []string{podCIDR}
	}
	_, err := w.Client().CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

// makeNodes creates the nodes with numbers from..to-1, one after the other.
func (w *world) makeNodes(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		require.NoError(t, w.makeNode(t.Context(), i, ""))
	}
}

// removeNodes deletes the nodes with numbers from..to-1.
func (w *world) removeNodes(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		require.NoError(t, w.Client().CoreV1().Nodes().Delete(t.Context(), kubetest.Node(i), metav1.DeleteOptions{}))
	}
}

// ports returns the rows of the selected pods of a load, by name.
func (w *world) ports(t *testing.T, chosen func(i int) bool, load kubetest.PodLoad) map[string]nb.LogicalSwitchPort {
	t.Helper()
	names := map[string]bool{}
	for i := range load.Count {
		p := load.Pod(i)
		names[p.Namespace+":"+p.Name] = chosen(i)
	}
	now, err := w.rows.read(t.Context())
	require.NoError(t, err)
	out := map[string]nb.LogicalSwitchPort{}
	for _, p := range now.ports {
		if names[p.Name] {
			out[p.Name] = p
		}
	}
	return out
}

// addresses returns the addresses of ports, by name.
func addresses(ports map[string]nb.LogicalSwitchPort) map[string][]string {
	out := map[string][]string{}
	for name, p := range ports {
		out[name] = p.Addresses
	}
	return out
}

// putPod puts a pod on the node with a number, as a RESTCONF client.
func (r running) putPod(t *testing.T, uid, name, namespace string, node int) {
	t.Helper()
	r.send(t, http.StatusCreated, http.MethodPut, podPath(uid), fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":%q,"network-NS":%q,"host-ip-address":%q}]}`, uid, name, namespace, kubetest.NodeAddress(node)))
}

func podPath(uid string) string { return "/restconf/config/pod:coe/pods/" + uid }
