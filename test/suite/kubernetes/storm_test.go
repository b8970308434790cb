package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// Sizes of the cluster for storms.
const (
	stormNodes      = 50
	stormNamespaces = 20
	// The least duration and number of changes of services that flap, in each layout.
	flapTime   = 10 * time.Second
	flapRounds = 6
)

// TestStorms makes many changes at the same time, in several storms with one bridge. After each storm
// the rows match a fresh list. After the last one nothing is left. Each layout has half of the changes.
func TestStorms(t *testing.T) {
	w := newWorld(t, kubetest.Config{ControllerManager: true}, stormNodes, stormNamespaces)
	w.layout = ovn.LayoutNode
	t.Run("layout node", func(t *testing.T) { storms(t, w) })
	w.makeNodes(t, 0, stormNodes)
	w.newBackend(t)
	w.layout = ovn.LayoutELAN
	t.Run("layout elan", func(t *testing.T) { storms(t, w) })
}

func storms(t *testing.T, w *world) {
	dir := t.TempDir()
	b := w.serve(t, withDir(dir))
	w.awaitExact(t, b, converge)
	var before footprint
	t.Run("calm", func(t *testing.T) { before = w.calm(t, b) })
	t.Run("pods created and deleted", func(t *testing.T) {
		load := kubetest.PodLoad{Count: 2500, Namespaces: stormNamespaces, Nodes: stormNodes}
		made, err := w.MakePods(t.Context(), load)
		require.NoError(t, err)
		w.awaitExact(t, b, converge)
		t.Logf("made %s", made)
		deleted, err := w.DeletePods(t.Context(), load)
		require.NoError(t, err)
		w.awaitExact(t, b, converge)
		t.Logf("deleted %s", deleted)
	})
	t.Run("pods created again under their names", func(t *testing.T) { stormOfNames(t, w, b) })
	t.Run("pods moved, finished, labelled", func(t *testing.T) { stormOfChanges(t, w, b) })
	t.Run("services flapping", func(t *testing.T) {
		load := kubetest.ServiceLoad{Count: 500, Endpoints: 10, Namespaces: stormNamespaces}
		_, err := w.MakeServices(t.Context(), load)
		require.NoError(t, err)
		begun, rounds := time.Now(), 0
		for ; rounds < flapRounds || time.Since(begun) < flapTime; rounds++ {
			_, err := w.FlapEndpoints(t.Context(), load, rounds+1)
			require.NoError(t, err)
		}
		w.awaitExact(t, b, converge)
		t.Logf("flapped %d times in %s", rounds, time.Since(begun).Round(time.Second))
		_, err = kubetest.Each(t.Context(), load.Count, kubetest.Workers, func(ctx context.Context, i int) error {
			s := load.Service(i)
			return errors.Join(
				w.Client().CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}),
				w.Client().DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		})
		require.NoError(t, err)
		w.awaitExact(t, b, converge)
	})
	t.Run("nodes removed", func(t *testing.T) { stormOfNodes(t, w, b) })
	t.Run("namespace deleted", func(t *testing.T) { stormOfNamespace(t, w, b) })
	t.Run("nothing is left", func(t *testing.T) { w.requireNothingLeft(t, b, before, dir) })
}

// stormOfNames deletes pods and creates them again with the same names, on another node each time, as
// fast as the API server allows.
func stormOfNames(t *testing.T, w *world, b running) {
	const names, rounds = 20, 15
	pod := func(i, round int) *corev1.Pod {
		p := kubetest.PodLoad{Namespaces: 4, Nodes: stormNodes, Prefix: "again-"}.Pod(i)
		p.Spec.NodeName = kubetest.Node((i + 7*round) % stormNodes)
		return p
	}
	_, err := kubetest.Each(t.Context(), names, kubetest.Workers, func(ctx context.Context, i int) error {
		for round := range rounds {
			if err := w.recreatePod(ctx, pod(i, round)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	w.restorePods(t, b, names, func(i int) *corev1.Pod { return pod(i, rounds-1) })
	require.Len(t, b.living(), names)
	w.deletePods(t, names, func(i int) *corev1.Pod { return pod(i, 0) })
	w.awaitExact(t, b, converge)
}

// stormOfChanges moves the first third of its pods to other nodes, ends the second third, and labels the
// last third. Labels must not change the database.
func stormOfChanges(t *testing.T, w *world, b running) {
	const count = 150
	load := kubetest.PodLoad{Count: count, Namespaces: 5, Nodes: 10, Prefix: "changed-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	labelled := w.ports(t, func(i int) bool { return i >= 2*count/3 }, load)

	moved := func(i int) *corev1.Pod {
		p := load.Pod(i)
		p.Spec.NodeName = kubetest.Node(10 + i%10)
		return p
	}
	_, err = kubetest.Each(t.Context(), count, kubetest.Workers, func(ctx context.Context, i int) error {
		p := load.Pod(i)
		switch {
		case i < count/3:
			return w.recreatePod(ctx, moved(i))
		case i < 2*count/3:
			phase := []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[i%2]
			return w.SetPodStatus(ctx, p.Namespace, p.Name, kubetest.PodStatus{Phase: phase})
		default:
			return w.label(ctx, p)
		}
	})
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	w.restorePods(t, b, count/3, moved)
	require.Len(t, b.living(), 2*count/3)
	require.Equal(t, labelled, w.ports(t, func(i int) bool { return i >= 2*count/3 }, load), "rows of pods that were labelled")
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
}

// stormOfNodes removes nodes with pods and creates them again. Some of the pods have the address of
// their node in their status.
func stormOfNodes(t *testing.T, w *world, b running) {
	load := kubetest.PodLoad{Count: 200, Namespaces: 4, Nodes: 10, Prefix: "stranded-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	for i := range 40 { // on the first node and on others
		p := load.Pod(i)
		_, err := w.Client().CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, "application/merge-patch+json",
			fmt.Appendf(nil, `{"status":{"hostIP":%q}}`, kubetest.NodeAddress(i/4%10)), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	w.awaitExact(t, b, converge)
	all := w.ports(t, func(int) bool { return true }, load)
	w.removeNodes(t, 0, 5)
	w.awaitExact(t, b, converge)
	require.Equal(t, addresses(all), addresses(w.ports(t, func(int) bool { return true }, load)), "pods that may run still keep their network")
	require.NoError(t, b.hasProblem(load.Pod(40).Name, "NoNode"))

	w.makeNodes(t, 0, 5)
	w.awaitExact(t, b, converge)
	require.Equal(t, addresses(all), addresses(w.ports(t, func(int) bool { return true }, load)))
	_, err = w.DeletePods(t.Context(), load)
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
}

// stormOfNamespace deletes a namespace that has pods and services.
func stormOfNamespace(t *testing.T, w *world, b running) {
	const namespace = "doomed"
	_, err := w.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	load := kubetest.PodLoad{Count: 250, Nodes: stormNodes}
	_, err = kubetest.Each(t.Context(), load.Count, kubetest.Workers, func(ctx context.Context, i int) error {
		p := load.Pod(i)
		p.Namespace = namespace
		_, err := w.Client().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	require.NoError(t, err)
	w.awaitExact(t, b, converge)
	require.NoError(t, w.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	await(t, converge, "the namespace is deleted", func() error {
		_, err := w.Client().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return fmt.Errorf("namespace %s exists", namespace)
		}
		return err
	})
	w.awaitExact(t, b, converge)
	require.Empty(t, b.living())
}
