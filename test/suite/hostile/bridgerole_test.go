package hostile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// An attacker has the token of the bridge. The bridge annotates pods with that token. The attacker
// cannot change the spec of a pod with it: no image, no container, no node. The attacker can change
// labels, finalizers and the status.
func TestWhatTheRoleOfTheBridgeLeaves(t *testing.T) {
	plane := kubetest.ForTest(t, kubetest.Config{RBAC: true})
	const manifests = "../../../deploy/kubernetes/bridge/"
	_, err := plane.Kubectl(t.Context(), "apply", "--server-side", "-f", manifests+"namespace.yaml", "-f", manifests+"rbac.yaml")
	require.NoError(t, err)
	_, err = plane.MakeNodes(t.Context(), 1)
	require.NoError(t, err)
	token, err := plane.ServiceAccountToken(t.Context(), "coe-bridge", "coe-bridge", time.Hour)
	require.NoError(t, err)
	config := plane.RESTConfig()
	config.BearerToken = token
	thief, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	kubeconfig, err := plane.WriteKubeconfig(token)
	require.NoError(t, err)
	b := bridgetest.Serve(t, "--data-dir", t.TempDir(), "--kubeconfig", kubeconfig, "--pool", "10.11.0.0/16")
	t.Cleanup(b.Stop)

	for _, namespace := range []string{"default", metav1.NamespaceSystem} {
		t.Run(namespace, func(t *testing.T) {
			pods := plane.Client().CoreV1().Pods(namespace)
			stolen := thief.CoreV1().Pods(namespace)
			_, err := pods.Create(t.Context(), rbacPod("victim", kubetest.Node(0)), metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = pods.Create(t.Context(), rbacPod("pending", ""), metav1.CreateOptions{})
			require.NoError(t, err)
			var before *corev1.Pod
			bridgetest.Await(t, interval, converge, "the annotation", func() error {
				before, err = pods.Get(t.Context(), "victim", metav1.GetOptions{})
				if err == nil && !strings.Contains(before.Annotations[kube.InterfacesAnnotation], `"10.11.`) {
					err = errors.New("the pod has no annotation yet")
				}
				return err
			})

			image := []byte(`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`)
			ephemeral := []byte(`{"spec":{"ephemeralContainers":[{"name":"e","image":"evil"}]}}`)
			refused := func(what string, err error) {
				t.Helper()
				require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
			}
			for what, attempt := range map[string]struct {
				patch []byte
				parts []string
			}{
				"image":                {image, nil},
				"labels":               {[]byte(`{"metadata":{"labels":{"a":"b"}}}`), nil},
				"ephemeral containers": {ephemeral, []string{"ephemeralcontainers"}},
				"resources":            {image, []string{"resize"}},
			} {
				_, err := stolen.Patch(t.Context(), "victim", types.StrategicMergePatchType, attempt.patch, metav1.PatchOptions{}, attempt.parts...)
				refused(what, err)
			}
			refused("binding", stolen.Bind(t.Context(), &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "pending"}, Target: corev1.ObjectReference{Kind: "Node", Name: kubetest.Node(0)},
			}, metav1.CreateOptions{}))
			refused("delete", stolen.Delete(t.Context(), "victim", metav1.DeleteOptions{}))
			_, err = stolen.Create(t.Context(), rbacPod("new", kubetest.Node(0)), metav1.CreateOptions{})
			refused("create", err)
			_, err = stolen.UpdateStatus(t.Context(), before, metav1.UpdateOptions{})
			refused("update of the status", err)

			// The API server accepts these patches of the status, and ignores their spec.
			for _, patch := range [][]byte{image, ephemeral, []byte(`{"spec":{"nodeName":"elsewhere","serviceAccountName":"other"}}`)} {
				_, err := stolen.Patch(t.Context(), "victim", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
				require.NoError(t, err, "%s", patch)
			}
			_, err = stolen.Patch(t.Context(), "victim", types.MergePatchType, []byte(rbacDeletion), metav1.PatchOptions{}, "status")
			require.True(t, apierrors.IsInvalid(err), "deletion: %v", err)
			_, err = stolen.Patch(t.Context(), "victim", types.MergePatchType, []byte(rbacStatusPatch), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			after, err := pods.Get(t.Context(), "victim", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, before.Spec, after.Spec)
			require.Empty(t, after.OwnerReferences)
			require.Nil(t, after.DeletionTimestamp)

			// RBAC allows the attacker to change these parts of a pod.
			require.Equal(t, "label", after.Labels["stolen"])
			require.Equal(t, []string{"stolen.example/finalizer"}, after.Finalizers)
			require.Equal(t, corev1.PodFailed, after.Status.Phase)
			require.Equal(t, "10.11.9.9", after.Status.PodIP)
			require.Equal(t, corev1.ConditionTrue, after.Status.Conditions[0].Status)
		})
	}
}

const (
	rbacDeletion    = `{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0}}`
	rbacStatusPatch = `{
		"metadata":{
			"labels":{"stolen":"label"},
			"finalizers":["stolen.example/finalizer"],
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"11111111-1111-4111-8111-111111111111"}]
		},
		"status":{"phase":"Failed","podIP":"10.11.9.9","podIPs":[{"ip":"10.11.9.9"}],"conditions":[{"type":"Ready","status":"True"}]}
	}`
)

func rbacPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "good"}}},
	}
}
