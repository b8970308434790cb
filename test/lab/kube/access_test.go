package kube_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const accounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest, namespace: default}
`

const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
`

const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
`

func TestServiceAccounts(t *testing.T) {
	c := kube.ForTest(t, kube.Config{RBAC: true})
	_, err := c.ServiceAccountToken(t.Context(), "default", "reader", time.Hour)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.NoError(t, c.Apply(t.Context(), accounts))
	reader, guest := clientOf(t, c, "reader", time.Hour), clientOf(t, c, "guest", time.Hour)

	require.True(t, apierrors.IsForbidden(list(t, reader)))
	require.NoError(t, c.Apply(t.Context(), role, binding))
	require.Eventually(t, func() bool { return list(t, reader) == nil }, patience, interval)
	require.True(t, apierrors.IsForbidden(list(t, guest)), "roles are the reader's")

	brief := clientOf(t, c, "reader", 10*time.Second)
	require.NoError(t, list(t, brief))
	require.True(t, apierrors.IsUnauthorized(list(t, clientOf(t, c, "reader", 0))))
	out, err := c.Kubectl(t.Context(), "delete", "serviceaccount", "guest", "--namespace=default")
	require.NoError(t, err)
	require.Contains(t, out, "deleted")
	require.Eventually(t, func() bool { return apierrors.IsUnauthorized(list(t, brief)) }, patience, interval)
	require.Eventually(t, func() bool { return apierrors.IsUnauthorized(list(t, guest)) }, patience, interval)
	require.NoError(t, list(t, reader))

	_, err = c.Kubectl(t.Context(), "get", "pods", "--namespace=nowhere", "--token=wrong")
	require.ErrorContains(t, err, "Unauthorized", "kubectl's complaint")
}

// clientOf returns a client for a service account, with its own token and kubeconfig.
func clientOf(t *testing.T, c *kube.ControlPlane, account string, lifetime time.Duration) *kubernetes.Clientset {
	t.Helper()
	token, err := c.ServiceAccountToken(t.Context(), "default", account, lifetime)
	require.NoError(t, err)
	return clientWith(t, c, token)
}

func clientWith(t *testing.T, c *kube.ControlPlane, token string) *kubernetes.Clientset {
	t.Helper()
	path, err := c.WriteKubeconfig(token)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func list(t *testing.T, client *kubernetes.Clientset) error {
	_, err := client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), everywhere)
	return err
}
