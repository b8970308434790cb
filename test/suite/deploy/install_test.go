package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	namespace = "coe-bridge"
	user      = "admin"
	password  = "an example's password"
	// annotation is the annotation of pods with their addresses.
	annotation = "coe-bridge.io/interfaces"
)

// cluster is a control plane with three control-plane nodes that are not ready. coe-bridge is
// installed there as docs/kubernetes.md says.
type cluster struct {
	*kube.ControlPlane
	*checkout
	kubelets map[string]*kubelet // by node
}

// nodes has the nodes of docs/kubernetes.md, with their addresses. The last one is added later.
var nodes = []struct{ name, address string }{{"cp-1", "10.0.0.11"}, {"cp-2", "10.0.0.12"}, {"cp-3", "10.0.0.13"}, {"cp-4", "10.0.0.14"}}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane := kube.ForTest(t, kube.Config{RBAC: true, ControllerManager: true, Scheduler: true})
	program := bridgetest.Program(t)
	hyperkube, err := kube.Build(t.Context(), os.Stderr)
	require.NoError(t, err)
	c := &cluster{plane, newCheckout(t, plane, program), map[string]*kubelet{}}
	ours := fmt.Sprintf("127.%d.%d.", 64+rand.IntN(64), rand.IntN(256))
	for i, n := range nodes {
		c.kubelets[n.name] = &kubelet{
			client: plane.Client(), api: plane.RESTConfig(),
			node: n.name, address: ours + fmt.Sprint(11+i), dir: t.TempDir(),
			programs: map[string]string{"coe-bridge": program, "etcd": hyperkube},
		}
	}
	for _, n := range nodes[:3] {
		c.join(t, n.name, n.address)
	}
	return c
}

// join adds a node to the cluster.
func (c *cluster) join(t *testing.T, name, address string) {
	t.Helper()
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), newNode(name, address), metav1.CreateOptions{})
	require.NoError(t, err)
}

// newNode returns a control-plane node before it has a network.
func newNode(name, address string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "node-role.kubernetes.io/control-plane": "",
		}},
		Status: corev1.NodeStatus{
			Capacity:  corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("110")},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		},
	}
	n.Status.Allocatable = n.Status.Capacity
	for _, key := range []string{
		"node-role.kubernetes.io/control-plane", corev1.TaintNodeNotReady,
		corev1.TaintNodeNetworkUnavailable, "node.cloudprovider.kubernetes.io/uninitialized",
	} {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

// install runs the documented commands.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	c.run(t, c.here(commands(t, "variables", "functions", "", "ovn")))
	api, err := url.Parse(c.URL())
	require.NoError(t, err)
	c.edit(t, "deploy/kubernetes/mine", append(c.addresses(),
		"10.0.0.10", api.Hostname(), "6443", api.Port(), "backend: ovn", "backend: memory")...)
	for range 2 { // the commands can be repeated
		c.run(t, commands(t, "apply"))
	}
	c.run(t, "kubectl diff --server-side -k deploy/kubernetes/mine")
}

// here replaces the addresses of nodes in a text by their addresses in this test.
func (c *cluster) here(text string) string {
	return strings.NewReplacer(c.addresses()...).Replace(text)
}

func (c *cluster) addresses() (changes []string) {
	for _, n := range nodes {
		changes = append(changes, n.address, c.kubelets[n.name].address)
	}
	return changes
}

// pods waits until n pods of a component are on nodes. It returns the pods in the order of the nodes.
func (c *cluster) pods(t *testing.T, component string, n int) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	require.Eventually(t, func() bool {
		found = c.bound(t, component)
		return len(found) == n
	}, patience, poll, "%d pods of %s on nodes", n, component)
	slices.SortFunc(found, func(a, b corev1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	return found
}

// podOf waits until a pod of a component is on a node.
func (c *cluster) podOf(t *testing.T, component, node string) (found []corev1.Pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		found = slices.DeleteFunc(c.bound(t, component), func(p corev1.Pod) bool { return p.Spec.NodeName != node })
		return len(found) == 1
	}, patience, poll, "a pod of %s on %s", component, node)
	return found
}

// bound returns the pods of a component that are on nodes and are not being deleted.
func (c *cluster) bound(t *testing.T, component string) []corev1.Pod {
	t.Helper()
	list, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=coe-bridge,app.kubernetes.io/component=" + component,
	})
	require.NoError(t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" || p.DeletionTimestamp != nil })
}

// start runs pods on their nodes, and waits until all are ready.
func (c *cluster) start(t *testing.T, pods []corev1.Pod) (all []*running) {
	t.Helper()
	for i := range pods {
		all = append(all, c.kubelets[pods[i].Spec.NodeName].run(t, &pods[i]))
	}
	for _, r := range all {
		r.becomesReady(t, c.ControlPlane)
	}
	return all
}

// status is the status of a bridge.
type status struct {
	Leads    bool              `json:"leads"`
	InSync   bool              `json:"in-sync"`
	Complete bool              `json:"complete"`
	Problems []problem         `json:"problem"`
	Sources  []json.RawMessage `json:"source"`
}

type problem struct {
	Name string `json:"name"`
}

// status reads the status of a bridge, with the certificates of the guide.
func (c *cluster) status(t *testing.T, r *running) (s status, ok bool) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.dir, "certificates/coe-bridge-ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.kubelet.address+":8181/restconf/operational/coe-status:status", nil)
	require.NoError(t, err)
	request.SetBasicAuth(user, password)
	answer, err := client.Do(request)
	if err != nil {
		return s, false
	}
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	var body struct {
		Status status `json:"status"`
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
	return body.Status, true
}

// leader waits until a bridge leads and is in sync, and returns its index.
func (c *cluster) leader(t *testing.T, bridges []*running) (leads int) {
	t.Helper()
	require.Eventually(t, func() bool {
		leads = slices.IndexFunc(bridges, func(r *running) bool {
			s, ok := c.status(t, r)
			return ok && s.Leads && s.InSync && s.Complete
		})
		return leads >= 0
	}, patience, poll, "one leads")
	return leads
}

// hasAddress creates a pod and waits until it is annotated.
func (c *cluster) hasAddress(t *testing.T, name string) {
	t.Helper()
	pods := c.Client().CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(t.Context(), newPod(name, nodes[0].name), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return strings.Contains(pod.Annotations[annotation], `"10.244.`)
	}, patience, poll, "annotation of %s", name)
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: "localhost/none"}},
		},
	}
}

// TestInstall follows docs/kubernetes.md. Before the cluster has a network, an etcd of three members
// and two bridges run. The leader gives pods their addresses. When the leader is killed, or its node
// is drained, the other bridge takes over.
func TestInstall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.install(t)
	members := c.start(t, c.pods(t, "etcd", 3))
	bridges := c.start(t, c.pods(t, "bridge", 2))
	require.NotEqual(t, bridges[0].pod.Spec.NodeName, bridges[1].pod.Spec.NodeName)
	leads := c.leader(t, bridges)
	c.hasAddress(t, "first")

	killed := bridges[leads]
	killed.end(t, syscall.SIGKILL)
	c.leader(t, []*running{bridges[1-leads]})
	c.hasAddress(t, "second")
	bridges[leads] = killed.kubelet.run(t, killed.pod)
	bridges[leads].becomesReady(t, c.ControlPlane)

	leads = c.leader(t, bridges)
	c.awaitHealthy(t, 2)
	require.NoError(t, c.evict(t, bridges[leads]))
	require.True(t, apierrors.IsTooManyRequests(c.evict(t, bridges[1-leads])), "only one bridge can be evicted at a time")
	bridges[leads].end(t, syscall.SIGTERM)
	c.leader(t, []*running{bridges[1-leads]})
	c.hasAddress(t, "third")

	c.replace(t, members[2], nodes[3].name, nodes[3].address)
	c.hasAddress(t, "fourth")
}

// awaitHealthy waits until the disruption budget counts n healthy bridges.
func (c *cluster) awaitHealthy(t *testing.T, n int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		budget, err := c.Client().PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), "coe-bridge", metav1.GetOptions{})
		require.NoError(t, err)
		return budget.Status.ExpectedPods == n && budget.Status.CurrentHealthy == n && budget.Status.DisruptionsAllowed == 1
	}, patience, poll, "%d healthy bridges", n)
}

func (c *cluster) evict(t *testing.T, r *running) error {
	t.Helper()
	return c.Client().PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: r.pod.Name, Namespace: namespace},
	})
}
