package kubernetes

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// testBesideRESTCONF uses pods of RESTCONF and of Kubernetes together: different pods, pods with the
// same name, and the same pod in both sources.
func testBesideRESTCONF(t *testing.T, w *world, b running) {
	const mine, copied = "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"
	pod := w.create(t, "theirs", kubetest.Node(0))
	b.putPod(t, mine, "mine", pod.Namespace, 0)
	await(t, converge, "both pods have their rows", func() error {
		if err := w.hasPort("ns-0:mine"); err != nil {
			return err
		}
		return w.hasPort("ns-0:theirs")
	})
	require.Contains(t, b.send(t, http.StatusOK, http.MethodGet, podPath(string(pod.UID)), ""), "theirs")

	t.Run("a pod of Kubernetes cannot be changed", func(t *testing.T) {
		body := fmt.Sprintf(`{"pods":[{"uid":%q,"name":"other"}]}`, pod.UID)
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			answer := b.send(t, http.StatusConflict, method, podPath(string(pod.UID)), body)
			require.Contains(t, answer, "in-use")
			require.Contains(t, answer, "it comes from Kubernetes (pod ns-0/theirs)")
			body = ""
		}
		require.NoError(t, w.hasPort("ns-0:theirs"))
	})
	t.Run("the name of a pod of Kubernetes", func(t *testing.T) {
		b.putPod(t, copied, "theirs", pod.Namespace, 1)
		await(t, converge, "the later one is refused", func() error { return b.hasProblem("theirs", "NameTaken") })
		require.Equal(t, copied, b.problem("theirs").UID)
		require.Contains(t, b.problem("theirs").Message, string(pod.UID))
		w.remove(t, "theirs")
		await(t, converge, "the later one gets the name", func() error {
			if p := b.problem("theirs"); p != nil {
				return fmt.Errorf("problem %+v", p)
			}
			return w.hasPodUID(t, "ns-0:theirs", copied)
		})
	})
	t.Run("a pod of Kubernetes with the name of a deleted pod", func(t *testing.T) {
		again := w.create(t, "theirs", kubetest.Node(2))
		await(t, converge, "status", func() error { return b.hasProblem("theirs", "NameTaken") })
		require.Equal(t, string(again.UID), b.problem("theirs").UID)
		await(t, converge, "Event", func() error { return w.described(t, "theirs", "Warning", "NameTaken", copied) })
		require.NoError(t, w.hasPodUID(t, "ns-0:theirs", copied))
		b.send(t, http.StatusOK, http.MethodDelete, podPath(copied), "")
		await(t, converge, "it heals", func() error { return w.hasPodUID(t, "ns-0:theirs", string(again.UID)) })
		pod = again
	})
	b.send(t, http.StatusOK, http.MethodDelete, podPath(mine), "")
	w.remove(t, pod.Name)
	w.awaitExact(t, b, converge)
}

// hasPodUID fails unless a port belongs to a pod.
func (w *world) hasPodUID(t *testing.T, port, uid string) error {
	t.Helper()
	now, err := w.rows.read(t.Context())
	if err != nil {
		return err
	}
	for _, p := range now.ports {
		if p.Name == port && p.Options["iface-id-ver"] == uid {
			return nil
		}
	}
	return fmt.Errorf("port %s is not that of pod %s", port, uid)
}
