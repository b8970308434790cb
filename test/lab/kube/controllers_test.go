package kube_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ns-0}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: web, image: localhost/none}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ns-0}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

func TestControllersAndScheduler(t *testing.T) {
	c := kube.ForTest(t, kube.Config{
		ControllerManager: true,
		Scheduler:         true,
		ServiceCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.97.0.0/24"), netip.MustParsePrefix("fd97::/112")},
		PodCIDRs:          []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	})
	requireServiceOfAPIServer(t, c)
	token, err := c.Kubectl(t.Context(), "create", "token", "default", "--namespace=default")
	require.NoError(t, err)
	require.NoError(t, list(t, clientWith(t, c, token)), "a token that the API server signed")

	_, err = c.MakeNodes(t.Context(), 2)
	require.NoError(t, err)
	_, err = c.MakeNamespaces(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), web))

	require.Eventually(t, func() bool {
		node, err := c.Client().CoreV1().Nodes().Get(t.Context(), kube.Node(0), metav1.GetOptions{})
		return err == nil && node.Spec.PodCIDR != ""
	}, patience, interval, "the controller manager gives nodes their podCIDRs")

	var pods []corev1.Pod
	require.Eventually(t, func() bool {
		pods = scheduled(t, c)
		return len(pods) == 3
	}, patience, interval, "a Deployment has pods, and they have nodes")
	for i, pod := range pods {
		require.NoError(t, c.SetPodStatus(t.Context(), pod.Namespace, pod.Name, kube.PodStatus{
			Phase: corev1.PodRunning, Ready: true, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 244, 0, byte(i + 1)})},
		}))
	}
	require.Eventually(t, func() bool { return readyEndpoints(t, c) == 3 }, patience, interval, "a service has its endpoints")

	namespaces := c.Client().CoreV1().Namespaces()
	require.NoError(t, namespaces.Delete(t.Context(), kube.Namespace(0), metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := namespaces.Get(t.Context(), kube.Namespace(0), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval, "a namespace goes with what is in it")
}

func scheduled(t *testing.T, c *kube.ControlPlane) []corev1.Pod {
	t.Helper()
	list, err := c.Client().CoreV1().Pods(kube.Namespace(0)).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	require.NoError(t, err)
	return list.Items
}

// requireServiceOfAPIServer requires the service default/kubernetes with its endpoint.
func requireServiceOfAPIServer(t *testing.T, c *kube.ControlPlane) {
	t.Helper()
	const name = "kubernetes"
	service, err := c.Client().CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.97.0.1", service.Spec.ClusterIP)
	slice, err := c.Client().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, slice.Endpoints, 1)
}
