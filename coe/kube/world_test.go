package kube_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	cluster "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

type assertions = assert.CollectT

// account is the user of the Watcher in a cluster with RBAC.
const account = "coe-bridge"

// grant sets the permissions of the account, and waits until the API server knows them.
func grant(t *testing.T, c *cluster.ControlPlane, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: account}
	roles := c.Client().RbacV1().ClusterRoles()
	_, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.UpdateOptions{})
		require.NoError(t, err)
	} else {
		require.NoError(t, err)
		_, err = c.Client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: account}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = c.Client().CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	last := rules[len(rules)-1] // the API server learns a role as a whole
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + metav1.NamespaceDefault + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: last.Verbs[len(last.Verbs)-1], Group: last.APIGroups[len(last.APIGroups)-1], Resource: last.Resources[len(last.Resources)-1],
		},
	}}
	require.Eventually(t, func() bool {
		got, err := c.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed
	}, within, 20*time.Millisecond)
}

// kubeconfig returns the path of a new kubeconfig with a token of the account.
func kubeconfig(t *testing.T, c *cluster.ControlPlane, lifetime time.Duration) string {
	t.Helper()
	token, err := c.ServiceAccountToken(t.Context(), metav1.NamespaceDefault, account, lifetime)
	require.NoError(t, err)
	path, err := c.WriteKubeconfig(token)
	require.NoError(t, err)
	return path
}

// token returns the token of a kubeconfig.
func token(t *testing.T, path string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	for _, user := range config.AuthInfos {
		return user.Token
	}
	t.Fatal("the kubeconfig has no user")
	return ""
}

// seenPods are the pods that an observer was called with.
type seenPods struct {
	mu   sync.Mutex
	pods map[string]kube.PodSeen
}

func (s *seenPods) observe(p kube.PodSeen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[string]kube.PodSeen{}
	}
	s.pods[p.UID] = p
	if p.Deleted {
		delete(s.pods, p.UID)
	}
}

func (s *seenPods) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods)
}
