package kube_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coe-bridge/coe-bridge/test/kube"
)

const account = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
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
	require.NoError(t, c.Apply(t.Context(), account))

	reader := clientOf(t, c, time.Hour)
	require.True(t, apierrors.IsForbidden(list(t, reader)))
	require.NoError(t, c.Apply(t.Context(), role, binding))
	require.Eventually(t, func() bool { return list(t, reader) == nil }, patience, interval)

	const shortly = 2 * time.Second
	brief := clientOf(t, c, shortly)
	require.NoError(t, list(t, brief))
	require.True(t, apierrors.IsUnauthorized(list(t, clientOf(t, c, 0))))
	require.Eventually(t, func() bool { return apierrors.IsUnauthorized(list(t, brief)) }, patience, interval)

	out, err := c.Kubectl(t.Context(), "delete", "serviceaccount", "reader", "--namespace=default")
	require.NoError(t, err)
	require.Contains(t, out, "deleted")
	require.Eventually(t, func() bool { return apierrors.IsUnauthorized(list(t, reader)) }, patience, interval)
}

func TestTokenRequest(t *testing.T) {
	c := kube.ForTest(t, kube.Config{ControllerManager: true})
	token, err := c.Kubectl(t.Context(), "create", "token", "default", "--namespace=default")
	require.NoError(t, err)
	require.NoError(t, list(t, clientWith(t, c, token)))
}

// clientOf is a client of the service account's, with a token and a kubeconfig of its own.
func clientOf(t *testing.T, c *kube.ControlPlane, lifetime time.Duration) *kubernetes.Clientset {
	t.Helper()
	token, err := c.ServiceAccountToken(t.Context(), "default", "reader", lifetime)
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
