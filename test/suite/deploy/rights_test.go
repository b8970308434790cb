package deploy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// right is a verb on a resource.
type right struct{ group, resource, verb string }

// reviewTokens is a right that the bridge needs only for agents.
var reviewTokens = right{"authentication.k8s.io", "tokenreviews", "create"}

func (r right) String() string { return strings.Trim(r.verb+" "+r.resource+"."+r.group, ".") }

// The role has exactly the rights that the bridge needs. The bridge works with the role. If a right is
// removed, the bridge names it. The API server refuses everything else.
func TestRights(t *testing.T) {
	t.Parallel()
	plane := kube.ForTest(t, kube.Config{RBAC: true})
	_, err := plane.MakeNodes(t.Context(), 1)
	require.NoError(t, err)
	for _, name := range []string{"served", "other"} {
		_, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = plane.Kubectl(t.Context(), "apply", "--server-side", "-k", root+"/deploy/kubernetes/bridge")
	require.NoError(t, err)
	role, err := plane.Client().RbacV1().ClusterRoles().Get(t.Context(), "coe-bridge", metav1.GetOptions{})
	require.NoError(t, err)
	w := &watched{plane}

	t.Run("enough", func(t *testing.T) {
		b := w.serve(t, "coe-bridge")
		w.create(t, "served", "enough")
		w.annotated(t, "enough")
		w.create(t, "other", "enough")
		w.awaitEvent(t, "enough", 1)
		w.again(t, b, "enough")
		w.awaitEvent(t, "enough", 2)
		b.inSync(t)
		require.False(t, b.Log().Says(0, "the API server"), "the bridge logs no missing right")
	})
	t.Run("no more", func(t *testing.T) { refused(t, plane) })
	for i, missing := range rightsOf(role.Rules) {
		t.Run("without "+missing.String(), func(t *testing.T) {
			if missing == reviewTokens {
				w.unjudged(t, rightsOf(role.Rules))
				return
			}
			if missing.verb == "list" || missing.verb == "watch" {
				t.Parallel() // not for rights to write: several bridges would write the same annotations and Events
			}
			account := fmt.Sprintf("without-%d", i)
			w.allow(t, account, without(rightsOf(role.Rules), missing))
			b := w.serve(t, account, annotating(missing))
			complaint := w.provoke(t, b, missing)
			require.Eventually(t, func() bool { return b.Log().Says(0, `"level":"ERROR"`, complaint) }, patience, poll, "%s in the log", complaint)
			require.Eventually(t, func() bool { return b.complains(complaint) }, patience, poll, "%s in the status", complaint)
			w.allow(t, account, rightsOf(role.Rules))
			b.inSync(t)
			require.Eventually(t, func() bool { return !b.complains(complaint) }, 2*patience, poll, "%s is over", complaint)
		})
	}
}

// annotating lets only the bridge annotate pods whose rights on annotations are tested. Several
// bridges would overwrite each other's annotations.
func annotating(r right) string {
	if r == (right{"", "pods/status", "patch"}) {
		return "--annotate-qps=50"
	}
	return "--annotate-qps=0"
}

// rightsOf returns the single rights of rules.
func rightsOf(rules []rbacv1.PolicyRule) (all []right) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, right{group, resource, verb})
				}
			}
		}
	}
	return all
}

func without(all []right, missing right) (rest []right) {
	for _, r := range all {
		if r != missing {
			rest = append(rest, r)
		}
	}
	return rest
}

// watched is an API server that bridges watch, with accounts that have different rights.
type watched struct{ *kube.ControlPlane }

// allow gives an account of the bridge's namespace exactly these rights.
func (w *watched) allow(t *testing.T, account string, rights []right) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account}
	role := rbacv1.ClusterRole{TypeMeta: rbac("ClusterRole"), ObjectMeta: meta}
	for _, r := range rights {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}})
	}
	binding := rbacv1.ClusterRoleBinding{
		TypeMeta: rbac("ClusterRoleBinding"), ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}
	serviceAccount := corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
	}
	var manifests []string
	for _, object := range []any{role, binding, serviceAccount} {
		text, err := json.Marshal(object)
		require.NoError(t, err)
		manifests = append(manifests, string(text))
	}
	require.NoError(t, w.Apply(t.Context(), manifests...))
}

func rbac(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// watcher is a bridge that watches with an account.
type watcher struct{ *bridgetest.Process }

// serve starts a bridge with a token of an account. Only pods of the namespace "served" get addresses.
func (w *watched) serve(t *testing.T, account string, args ...string) *watcher {
	t.Helper()
	answer, err := w.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig, err := w.WriteKubeconfig(answer.Status.Token)
	require.NoError(t, err)
	p := bridgetest.Serve(t, append([]string{
		"--data-dir", t.TempDir(), "--kubeconfig", kubeconfig, "--pool", "served=10.11.0.0/16", "--egress-ips",
	}, args...)...)
	t.Cleanup(p.Stop)
	return &watcher{p}
}

func (b *watcher) status() (s status) {
	b.Bridge().Get("operational/coe-status:status", &s)
	return s
}

// complains reports whether the bridge's status has a problem of a source.
func (b *watcher) complains(complaint string) bool {
	return slices.ContainsFunc(b.status().Sources, func(s json.RawMessage) bool { return strings.Contains(string(s), complaint) })
}

// inSync waits until the bridge has read all its sources and is in sync.
func (b *watcher) inSync(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { s := b.status(); return s.Leads && s.Complete && s.InSync }, patience, poll, "in sync")
}

// create creates a pod on a node.
func (w *watched) create(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := w.Client().CoreV1().Pods(namespace).Create(t.Context(), newPod(name, kube.Node(0)), metav1.CreateOptions{})
	require.NoError(t, err)
}

// annotated waits until a pod is annotated with its address.
func (w *watched) annotated(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		pod, err := w.Client().CoreV1().Pods("served").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return strings.Contains(pod.Annotations[annotation], `"10.11.`)
	}, patience, poll, "annotation of %s", name)
}

// awaitEvent waits for an Event with a count that reports a pod without an address.
func (w *watched) awaitEvent(t *testing.T, name string, times int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		events, err := w.Client().CoreV1().Events("other").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NoAddress,involvedObject.name=" + name})
		require.NoError(t, err)
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Count == times })
	}, patience, poll, "an Event of %s, %d times", name, times)
}

// again lets the problem of a pod without an address occur again: the pod ends and then runs again.
func (w *watched) again(t *testing.T, b *watcher, name string) {
	t.Helper()
	has := func() bool {
		return slices.ContainsFunc(b.status().Problems, func(p problem) bool { return p.Name == name })
	}
	require.Eventually(t, has, patience, poll)
	require.NoError(t, w.SetPodStatus(t.Context(), "other", name, kube.PodStatus{Phase: corev1.PodSucceeded}))
	require.Eventually(t, func() bool { return !has() }, patience, poll)
	require.NoError(t, w.SetPodStatus(t.Context(), "other", name, kube.PodStatus{Phase: corev1.PodRunning}))
}

// provoke makes the bridge use a right, and returns its message about the missing right.
func (w *watched) provoke(t *testing.T, b *watcher, r right) (complaint string) {
	t.Helper()
	name := strings.NewReplacer(" ", "-", "/", "-").Replace(strings.ToLower(r.String()))
	switch r {
	case right{"", "pods/status", "patch"}:
		w.create(t, "served", name)
		return "allow patch on pods/status"
	case right{"coe-bridge.io", "egressips/status", "patch"}:
		require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(`{"apiVersion":"coe-bridge.io/v1","kind":"EgressIP","metadata":{"name":%q},
			"spec":{"egressIPs":["192.0.2.10"],"namespaceSelector":{}}}`, name)))
		return "allow patch on egressips/status"
	case right{"", "events", "create"}, right{"", "events", "patch"}:
		w.create(t, "other", name)
		if r.verb == "patch" {
			w.awaitEvent(t, name, 1)
			w.again(t, b, name)
		}
		return "allow create and patch on events"
	}
	return "does not allow the bridge to " + r.verb + " " + r.resource
}

// refused asks the API server for rights that the bridge must not have.
func refused(t *testing.T, plane *kube.ControlPlane) {
	account := "--as=system:serviceaccount:" + namespace + ":coe-bridge"
	for _, question := range []string{
		"create pods", "delete pods", "update pods", "patch pods", "update pods/status", "create pods/exec", "create pods/eviction", "patch pods/ephemeralcontainers", "create pods/binding",
		"get secrets", "list secrets", "get configmaps", "create serviceaccounts/token", "impersonate serviceaccounts",
		"patch nodes", "update nodes", "patch nodes/status", "delete nodes", "create nodes/proxy",
		"patch services", "patch services/status", "patch namespaces", "patch endpointslices.discovery.k8s.io",
		"delete events", "list events", "create events.events.k8s.io",
		"create leases.coordination.k8s.io", "escalate clusterroles.rbac.authorization.k8s.io", "patch deployments.apps", "* *",
	} {
		verb, resource, _ := strings.Cut(question, " ")
		resource, part, _ := strings.Cut(resource, "/")
		answer, err := plane.Kubectl(t.Context(), "auth", "can-i", verb, resource, "--subresource="+part, "--all-namespaces", account)
		require.Error(t, err, question) // exit code 1 means no
		require.Equal(t, "no", strings.TrimSpace(answer), question)
	}
}
