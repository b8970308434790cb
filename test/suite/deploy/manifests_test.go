package deploy

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// The API server accepts each folder of manifests without a warning and without an unknown field.
// Applying a folder again changes nothing.
func TestManifests(t *testing.T) {
	plane := kube.ForTest(t, kube.Config{RBAC: true, ControllerManager: true})
	for _, folder := range []string{"bridge", "etcd", "example", "."} {
		path := filepath.Join(root, "deploy/kubernetes", folder)
		for range 2 {
			_, err := plane.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-k", path)
			require.NoError(t, err)
		}
		_, err := plane.Kubectl(t.Context(), "diff", "--server-side", "-k", path)
		require.NoError(t, err, "%s: the second apply changes something", folder)
	}
	becomesPods(t, plane)
}

// becomesPods waits until the manifests have caused pods, and the pods of etcd are only on the
// labelled node.
func becomesPods(t *testing.T, plane *kube.ControlPlane) {
	t.Helper()
	for _, n := range nodes[:2] {
		_, err := plane.Client().CoreV1().Nodes().Create(t.Context(), newNode(n.name, n.address), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := plane.Kubectl(t.Context(), "label", "node", nodes[0].name, "coe-bridge.io/etcd=")
	require.NoError(t, err)
	want := map[string]int{"ReplicaSet": 2, "DaemonSet": 1 + 2} // and an agent on each node
	require.Eventually(t, func() bool {
		pods, err := plane.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		found := map[string]int{}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil {
				found[metav1.GetControllerOf(&p).Kind]++
			}
		}
		return maps.Equal(want, found)
	}, patience, poll, "pods of %v", want)
}
