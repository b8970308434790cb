package hostile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// A stolen token of the bridge can annotate pods. In no namespace can it change the programs of pods,
// read a Secret or create a pod.
func TestStolenTokenOfTheBridge(t *testing.T) {
	plane := kubetest.ForTest(t, kubetest.Config{RBAC: true})
	_, err := plane.Kubectl(t.Context(), "apply", "--server-side", "-k", "../../../deploy/kubernetes/bridge")
	require.NoError(t, err)
	_, err = plane.MakeNamespaces(t.Context(), 1)
	require.NoError(t, err)
	_, err = plane.MakePods(t.Context(), kubetest.PodLoad{Count: 1, Prefix: "pod-"})
	require.NoError(t, err)
	token, err := plane.ServiceAccountToken(t.Context(), "coe-bridge", "coe-bridge", time.Hour)
	require.NoError(t, err)
	kubeconfig, err := plane.WriteKubeconfig(token)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	thief := kubernetes.NewForConfigOrDie(config)

	pods := thief.CoreV1().Pods("ns-0")
	const image = `{"metadata":{"annotations":{"thief":"was here"}},"spec":{"containers":[{"name":"c","image":"evil"}],"activeDeadlineSeconds":1}}`
	patch := func(subresources ...string) (*corev1.Pod, error) {
		return pods.Patch(t.Context(), "pod-0", types.StrategicMergePatchType, []byte(image), metav1.PatchOptions{}, subresources...)
	}
	before, err := plane.Client().CoreV1().Pods("ns-0").Get(t.Context(), "pod-0", metav1.GetOptions{})
	require.NoError(t, err)

	// The annotation arrives, and the spec stays.
	_, err = patch("status")
	require.NoError(t, err)
	after, err := plane.Client().CoreV1().Pods("ns-0").Get(t.Context(), "pod-0", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "was here", after.Annotations["thief"])
	require.Equal(t, before.Spec, after.Spec)

	// All other requests are refused.
	_, err = patch()
	require.True(t, apierrors.IsForbidden(err), "patch pods: %v", err)
	for _, sub := range []string{"ephemeralcontainers", "resize", "exec", "eviction", "binding"} {
		_, err = patch(sub)
		require.Error(t, err, sub)
		require.False(t, apierrors.IsInvalid(err), "%s: %v", sub, err)
	}
	_, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	err = pods.Delete(t.Context(), "pod-0", metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = thief.CoreV1().Secrets("ns-0").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = thief.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "default", nil, metav1.CreateOptions{})
	require.Error(t, err)
	_, err = thief.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}, "status")
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}
