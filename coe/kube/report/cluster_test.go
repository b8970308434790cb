package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/kube/report"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	cluster "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// role has the permissions of a Reporter and of the Watcher below it.
const role = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: bridge, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bridge}
rules:
- {apiGroups: [""], resources: [pods, namespaces, nodes, services], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bridge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bridge}
subjects: [{kind: ServiceAccount, name: bridge, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bridge-reports}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bridge-reports}
subjects: [{kind: ServiceAccount, name: bridge, namespace: default}]
`

const reports = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bridge-reports}
rules:
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
`

// bridge is the Kubernetes part of a bridge: a Watcher, the Store, a Reporter, and a component that
// gives every pod an address.
type bridge struct {
	store    *state.Store
	reporter *report.Reporter
	log      *log

	mu     sync.Mutex
	leased map[string]string // address by UID
}

type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func newBridge(t testing.TB, api *rest.Config) *bridge {
	b := &bridge{log: &log{}, leased: map[string]string{}}
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(b.log, t.Output()), nil))
	b.store = state.NewStore(func(c state.Changed) { b.reporter.Leased(c.Leased...) }, coe.Kubernetes)
	var err error
	b.reporter, err = report.New(report.Config{AnnotateQPS: math.Inf(1)}, api, b.store, prometheus.NewRegistry(), logger)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(api)
	require.NoError(t, err)
	source := kube.NewWatcher(kube.Config{Client: client, Store: b.store, Log: logger, Observe: b.observe})
	run(t, func(ctx context.Context) { _ = source.Run(ctx) })
	run(t, b.reporter.Run)
	return b
}

// run runs f until the test ends.
func run(t testing.TB, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func (b *bridge) observe(p kube.PodSeen) {
	b.reporter.Seen(p)
	if p.Deleted {
		return
	}
	b.mu.Lock()
	_, known := b.leased[p.UID]
	b.mu.Unlock()
	if !known {
		b.lease(p)
	}
}

// lease gives a pod the next address.
func (b *bridge) lease(p kube.PodSeen) {
	b.mu.Lock()
	n := len(b.leased)
	address := netip.AddrFrom4([4]byte{10, 11, byte(n >> 8), byte(n)})
	b.leased[p.UID] = address.String()
	b.mu.Unlock()
	b.store.Update(func(tx *state.Tx) {
		tx.PutLease(&coe.Lease{
			PodUID: p.UID, InterfaceUID: p.UID, Namespace: p.Namespace, Pod: p.Name,
			Name: netvirt.InterfaceName(p.Namespace, p.Name, p.UID, true), Primary: true,
			Node: cluster.NodeAddress(0), MAC: "0a:58:0a:0b:00:03",
			Addresses: []coe.LeasedAddress{{
				Address: address, Network: netip.PrefixFrom(address, 16).Masked(), Gateway: netip.MustParseAddr("10.11.255.254"),
			}},
		})
	})
}

func (b *bridge) address(uid types.UID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leased[string(uid)]
}

// check returns whether every pod of a namespace has the right annotation, and the number of pods.
func (b *bridge) check(t assert.TestingT, c *cluster.ControlPlane, namespace string, n int) {
	pods, err := c.Client().CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if !assert.NoError(t, err) || !assert.Len(t, pods.Items, n) {
		return
	}
	for _, p := range pods.Items {
		var all []report.Interface
		err := json.Unmarshal([]byte(p.Annotations[kube.InterfacesAnnotation]), &all)
		if !assert.NoError(t, err) || !assert.Len(t, all, 1, p.Name) {
			return
		}
		assert.Equal(t, p.Namespace+":"+p.Name, all[0].Name)
		assert.Equal(t, b.address(p.UID), all[0].IPs[0].Addr().String())
	}
}

func (b *bridge) inSync(t *testing.T, c *cluster.ControlPlane, namespace string, n int) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) { b.check(t, c, namespace, n) }, within, 50*time.Millisecond)
}

// within is the time in which an expected state must be reached on a busy machine.
const within = patience.Patience

func TestOnKubernetes(t *testing.T) {
	c := cluster.ForTest(t, cluster.Config{RBAC: true})
	ctx := t.Context()
	require.NoError(t, c.Apply(ctx, role))
	_, err := c.MakeNamespaces(ctx, 3)
	require.NoError(t, err)
	_, err = c.MakeNodes(ctx, 2)
	require.NoError(t, err)
	token, err := c.ServiceAccountToken(ctx, "default", "bridge", time.Hour)
	require.NoError(t, err)
	api := c.RESTConfig()
	api.BearerToken = token
	b := newBridge(t, api)
	load := cluster.PodLoad{Count: 30, Namespaces: 3, Nodes: 2}
	_, err = c.MakePods(ctx, load)
	require.NoError(t, err)
	problem := func(p *corev1.Pod, reason coe.Reason, message string) coe.Problem {
		return coe.Problem{Namespace: p.Namespace, Kind: "pod", UID: string(p.UID), Name: p.Name, Reason: reason, Message: message}
	}
	get := func(i int) *corev1.Pod {
		p, err := c.Client().CoreV1().Pods(load.Pod(i).Namespace).Get(ctx, load.Pod(i).Name, metav1.GetOptions{})
		require.NoError(t, err)
		return p
	}
	described := func(t *testing.T, p *corev1.Pod, pattern string) {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			text, err := c.Kubectl(ctx, "describe", "pod", "--namespace="+p.Namespace, p.Name)
			require.NoError(t, err)
			require.Regexp(t, pattern, text)
		}, within, 200*time.Millisecond)
	}

	t.Run("without the right to write", func(t *testing.T) {
		require.Eventually(t, func() bool { return len(b.store.View("ns-0").Pods) == 10 }, within, 20*time.Millisecond) // it has heard of them
		b.reporter.Problems("ns-0", []coe.Problem{problem(get(0), coe.PoolExhausted, "the pool is exhausted; enlarge it")})
		require.Eventually(t, func() bool { return len(b.reporter.Troubles()) == 2 }, within, 20*time.Millisecond)
		require.Contains(t, b.reporter.Troubles()[0], "allow patch on pods/status to the bridge's account")
		require.Contains(t, b.reporter.Troubles()[0], `cannot patch resource "pods/status"`)
		require.Contains(t, b.reporter.Troubles()[1], "allow create and patch on events to the bridge's account")
		require.Equal(t, 2, b.log.count("level=ERROR"), "each once")

		require.NoError(t, c.Apply(ctx, reports))
		for _, namespace := range []string{"ns-0", "ns-1", "ns-2"} {
			b.inSync(t, c, namespace, 10)
		}
		described(t, get(0), `Warning +PoolExhausted +\S+ +coe-bridge +the pool is exhausted; enlarge it`)
	})

	t.Run("a problem that heals", func(t *testing.T) {
		b.reporter.Problems("ns-0", nil)
		described(t, get(0), `Normal +Mapped `)
		text, err := c.Kubectl(ctx, "events", "--namespace=ns-0", "--for=pod/"+get(0).Name)
		require.NoError(t, err)
		require.Contains(t, text, "PoolExhausted")
	})

	t.Run("tampered with", func(t *testing.T) {
		p := get(1)
		_, err := c.Kubectl(ctx, "annotate", "pod", "--overwrite", "--namespace="+p.Namespace, p.Name, kube.InterfacesAnnotation+"=mine")
		require.NoError(t, err)
		b.inSync(t, c, "ns-1", 10)
		described(t, p, `Warning +AnnotationRestored .* coe-bridge +annotation coe-bridge.io/interfaces was changed and has been restored`)
		_, err = c.Kubectl(ctx, "annotate", "pod", "--namespace="+p.Namespace, p.Name, kube.InterfacesAnnotation+"-")
		require.NoError(t, err)
		b.inSync(t, c, "ns-1", 10)
	})

	t.Run("a readiness gate", func(t *testing.T) {
		pod := load.Pod(0)
		pod.Name, pod.Spec.ReadinessGates = "gated", []corev1.PodReadinessGate{{ConditionType: kube.NetworkReady}}
		_, err := c.Client().CoreV1().Pods("ns-0").Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, c.SetPodStatus(ctx, "ns-0", "gated", cluster.PodStatus{Phase: corev1.PodRunning, Ready: true}))
		b.inSync(t, c, "ns-0", 11)
		before, err := c.Client().CoreV1().Pods("ns-0").Get(ctx, "gated", metav1.GetOptions{})
		require.NoError(t, err)
		for _, p := range []*corev1.Pod{before, get(3)} {
			b.reporter.Confirmed(string(p.UID), true)
		}
		ready := func(p *corev1.Pod) int {
			return slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kube.NetworkReady })
		}
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			now, err := c.Client().CoreV1().Pods("ns-0").Get(ctx, "gated", metav1.GetOptions{})
			require.NoError(t, err)
			n := ready(now)
			require.GreaterOrEqual(t, n, 0)
			require.Equal(t, corev1.ConditionTrue, now.Status.Conditions[n].Status)
			require.ElementsMatch(t, before.Status.Conditions, slices.Delete(now.Status.Conditions, n, n+1), "the conditions of others stay")
			require.Equal(t, before.Annotations, now.Annotations)
		}, within, 50*time.Millisecond)
		require.Negative(t, ready(get(3)), "the pod does not ask for it")
		require.NoError(t, c.Client().CoreV1().Pods("ns-0").Delete(ctx, "gated", metav1.DeleteOptions{}))
		b.inSync(t, c, "ns-0", 10)
	})

	t.Run("created again with the same name", func(t *testing.T) {
		for range 20 {
			// A pod is deleted while it is annotated; the API server answers 404.
			err := c.Client().CoreV1().Pods("ns-2").Delete(ctx, load.Pod(2).Name, metav1.DeleteOptions{})
			require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
			_, err = c.Client().CoreV1().Pods("ns-2").Create(ctx, load.Pod(2), metav1.CreateOptions{})
			require.NoError(t, err)
		}
		b.inSync(t, c, "ns-2", 10)
	})

	t.Run("a namespace that goes", func(t *testing.T) {
		errors := b.log.count("level=ERROR")
		b.reporter.Problems("ns-2", []coe.Problem{problem(get(2), coe.NoAddress, "no pool")})
		require.NoError(t, c.Client().CoreV1().Namespaces().Delete(ctx, "ns-2", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			ns := b.store.Namespace("ns-2")
			return ns == nil || ns.Terminating
		}, within, 20*time.Millisecond)
		b.reporter.Problems("ns-2", []coe.Problem{problem(get(2), coe.PoolExhausted, "enlarge it")})
		b.reporter.Problems("ns-0", []coe.Problem{problem(get(3), coe.NoAddress, "no pool")})
		described(t, get(3), "NoAddress") // which was written later
		require.Equal(t, errors, b.log.count("level=ERROR"))
	})

	t.Run("the API server killed", func(t *testing.T) {
		require.NoError(t, c.APIServer.Kill())
		uid := uidOf(t, b, "ns-0:pod-0")
		b.lease(kube.PodSeen{UID: uid, Namespace: "ns-0", Name: "pod-0"}) // another address
		require.Eventually(t, func() bool { return len(b.reporter.Troubles()) > 0 }, within, 20*time.Millisecond)
		require.NoError(t, c.APIServer.Start(ctx))
		b.inSync(t, c, "ns-0", 10)
		require.Eventually(t, func() bool { return len(b.reporter.Troubles()) == 0 }, within, 20*time.Millisecond,
			"the API server denies requests until it has loaded its roles")
	})
}

// uidOf returns the UID of the pod of an interface.
func uidOf(t *testing.T, b *bridge, iface string) string {
	for _, l := range b.store.View("ns-0").Leases {
		if l.Name == iface {
			return l.PodUID
		}
	}
	require.Fail(t, "no lease of "+iface)
	return ""
}

// TestPatchOfAnotherUID checks the behaviour of the API server that the Reporter relies on.
func TestPatchOfAnotherUID(t *testing.T) {
	c := cluster.ForTest(t, cluster.Config{})
	_, err := c.MakeNamespaces(t.Context(), 1)
	require.NoError(t, err)
	pod, err := c.Client().CoreV1().Pods("ns-0").Create(t.Context(), cluster.PodLoad{Nodes: 1}.Pod(0), metav1.CreateOptions{})
	require.NoError(t, err)
	for uid, code := range map[string]int32{"00000000-0000-0000-0000-000000000000": 422, string(pod.UID): 0} {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]string{"a": uid}}})
		require.NoError(t, err)
		_, err = c.Client().CoreV1().Pods("ns-0").Patch(t.Context(), pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		if code == 0 {
			require.NoError(t, err)
			continue
		}
		var status *apierrors.StatusError
		require.ErrorAs(t, err, &status)
		require.Equal(t, code, status.ErrStatus.Code)
		require.Equal(t, "metadata.uid", status.ErrStatus.Details.Causes[0].Field)
	}
	pod, err = c.Client().CoreV1().Pods("ns-0").Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, string(pod.UID), pod.Annotations["a"])
}
