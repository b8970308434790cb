package kube_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/state"
	cluster "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// said is the state of a Store without the times of reports.
type said struct {
	Pods      map[string]coe.Pod
	Services  map[string]*coe.Service
	Endpoints map[string]*coe.Endpoints
	Nodes     map[netip.Addr]*coe.Node
	Labels    map[string]coe.Labels // of the namespaces
	Policies  map[string]*coe.PolicySpec
}

func newSaid() said {
	return said{
		map[string]coe.Pod{}, map[string]*coe.Service{}, map[string]*coe.Endpoints{}, map[netip.Addr]*coe.Node{},
		map[string]coe.Labels{}, map[string]*coe.PolicySpec{},
	}
}

func (s said) addPod(p coe.Pod) {
	p.Reported = coe.Reported{}
	s.Pods[p.UID] = p
}

func ofStore(store *state.Store) said {
	s := newSaid()
	for _, name := range store.Namespaces() {
		view := store.View(name)
		for _, p := range view.Pods {
			s.addPod(*p)
		}
		for _, one := range view.Services {
			s.Services[one.UID] = one
		}
		for _, one := range view.Endpoints {
			s.Endpoints[one.UID] = one
		}
	}
	for addr, n := range store.Nodes() {
		s.Nodes[addr] = n
	}
	set := store.Cluster().PolicySet
	maps.Copy(s.Labels, set.Namespaces)
	for _, p := range set.Policies {
		s.Policies[p.UID] = p
	}
	return s
}

// ofCluster returns the expected state of the Store for the current cluster.
func ofCluster(t *testing.T, c *cluster.ControlPlane) said {
	ctx, all, s := t.Context(), metav1.ListOptions{}, newSaid()
	nodes, err := c.Client().CoreV1().Nodes().List(ctx, all)
	require.NoError(t, err)
	addresses := map[string]netip.Addr{}
	for _, n := range nodes.Items {
		one := kube.Node(&n, "")
		s.Nodes[one.Address()], addresses[n.Name] = one, one.Address()
	}
	pods, err := c.Client().CoreV1().Pods("").List(ctx, all)
	require.NoError(t, err)
	for _, p := range pods.Items {
		one := kube.Pod(&p)
		if addr := addresses[p.Spec.NodeName]; addr.IsValid() {
			one.HostIP = addr
		}
		s.addPod(*one)
	}
	services, err := c.Client().CoreV1().Services("").List(ctx, all)
	require.NoError(t, err)
	for _, one := range services.Items {
		s.Services[string(one.UID)] = kube.Service(&one)
	}
	namespaces, err := c.Client().CoreV1().Namespaces().List(ctx, all)
	require.NoError(t, err)
	for _, n := range namespaces.Items {
		s.Labels[n.Name] = coe.NewLabels(n.Labels)
	}
	policies, err := c.Client().NetworkingV1().NetworkPolicies("").List(ctx, all)
	require.NoError(t, err)
	for _, p := range policies.Items {
		s.Policies[string(p.UID)] = kube.Policy(&p)
	}
	slices, err := c.Client().DiscoveryV1().EndpointSlices("").List(ctx, all)
	require.NoError(t, err)
	for _, one := range slices.Items {
		s.Endpoints[string(one.UID)] = kube.Endpoints(&one)
	}
	return s
}

// running is a Watcher that runs until its test ends.
type running struct {
	*kube.Watcher
	store *state.Store
	log   *log
}

// log collects the log.
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

func run(t *testing.T, kubeconfig string, observe func(kube.PodSeen)) *running {
	r := &running{store: state.NewStore(nil, coe.Kubernetes), log: &log{}}
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(r.log, t.Output()), nil))
	api, err := kube.Connect(kubeconfig, "test", logger)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(api)
	require.NoError(t, err)
	r.Watcher = kube.NewWatcher(kube.Config{
		Client: client, Store: r.store, Log: logger, Registerer: prometheus.NewRegistry(), Observe: observe,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.ErrorIs(t, err, context.Canceled)
		case <-time.After(within):
			t.Error("the source does not end")
		}
	})
	return r
}

// problem returns the problem of a resource; empty if there is none.
func (r *running) problem(resource string) string {
	for _, one := range r.Status().Resources {
		if one.Resource == resource {
			return one.Problem
		}
	}
	return "no such resource"
}

// within is the time in which an expected state must be reached on a busy machine.
const within = patience.Patience

func (r *running) eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, within, 20*time.Millisecond, what)
}

// inSync waits until the Store matches the cluster.
func (r *running) inSync(t *testing.T, c *cluster.ControlPlane) {
	t.Helper()
	want := ofCluster(t, c)
	begun := time.Now()
	require.EventuallyWithT(t, func(t *assertions) { require.Equal(t, want, ofStore(r.store)) }, within, 20*time.Millisecond)
	t.Logf("in sync after %v", time.Since(begun).Round(time.Millisecond))
}

func TestFollowsThroughFaults(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{})
	ctx := t.Context()
	_, err := c.MakeNamespaces(ctx, 2)
	require.NoError(t, err)
	pods := cluster.PodLoad{Count: 50, Namespaces: 2, Nodes: 3}
	_, err = c.MakePods(ctx, pods)
	require.NoError(t, err)

	var seen seenPods
	r := run(t, c.Kubeconfig(), seen.observe)
	r.inSync(t, c)
	r.eventually(t, "watching", func() bool { return r.store.Complete() && r.Status().Reachable })
	require.Equal(t, 50, seen.count())

	t.Run("nodes come after their pods", func(t *testing.T) {
		_, err := c.MakeNodes(ctx, 3)
		require.NoError(t, err)
		r.inSync(t, c)
		require.NoError(t, c.Client().CoreV1().Nodes().Delete(ctx, cluster.Node(1), metav1.DeleteOptions{}))
		r.inSync(t, c)
	})
	t.Run("services", func(t *testing.T) {
		load := cluster.ServiceLoad{Count: 5, Endpoints: 4, Namespaces: 2}
		_, err := c.MakeServices(ctx, load)
		require.NoError(t, err)
		r.inSync(t, c)
		_, err = c.FlapEndpoints(ctx, load, 1)
		require.NoError(t, err)
		r.inSync(t, c)
	})
	t.Run("policies and labels", func(t *testing.T) {
		r.eventually(t, "policies are listed", func() bool { return r.store.Cluster().PolicySet.Complete })
		require.NoError(t, c.Apply(ctx, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: `+cluster.Namespace(0)+`}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {tier: front}}}], ports: [{port: web}]}]}
`))
		label := `{"metadata":{"labels":{"tier":"front"}}}`
		_, err := c.Client().CoreV1().Namespaces().Patch(ctx, cluster.Namespace(1), types.MergePatchType, []byte(label), metav1.PatchOptions{})
		require.NoError(t, err)
		_, err = c.Client().CoreV1().Pods(cluster.Namespace(1)).Patch(ctx, "pod-3", types.MergePatchType, []byte(label), metav1.PatchOptions{})
		require.NoError(t, err)
		r.inSync(t, c)
		set := r.store.Cluster().PolicySet
		require.Len(t, set.Policies, 1)
		require.Equal(t, []uint16{8080}, set.NamedPorts[coe.NamedPort{Name: "web", Protocol: "tcp"}])
	})
	t.Run("phases and addresses", func(t *testing.T) {
		require.NoError(t, c.SetPodStatus(ctx, cluster.Namespace(0), "pod-0", cluster.PodStatus{Phase: corev1.PodFailed}))
		require.NoError(t, c.SetPodStatus(ctx, cluster.Namespace(1), "pod-1", cluster.PodStatus{
			Phase: corev1.PodRunning, Addresses: []netip.Addr{netip.MustParseAddr("10.11.2.3")}, Ready: true,
		}))
		r.inSync(t, c)
	})
	t.Run("the API server is killed", func(t *testing.T) {
		before := ofStore(r.store)
		require.NoError(t, c.APIServer.Kill())
		r.eventually(t, "said to be unreachable", func() bool {
			return !r.Status().Reachable && strings.Contains(r.problem("pods"), "the API server is unreachable: dial tcp 127.0.0.1:")
		})
		r.eventually(t, "logged", func() bool { return r.log.count("cannot watch Kubernetes") > 0 })
		require.Equal(t, before, ofStore(r.store))
		require.Equal(t, 1, r.log.count("cannot watch Kubernetes"), "logged once, for all resources")
		require.NoError(t, c.APIServer.Start(ctx))
		_, err := c.DeletePods(ctx, cluster.PodLoad{Count: 10, Namespaces: 2})
		require.NoError(t, err)
		r.inSync(t, c)
		r.eventually(t, "followed again", func() bool { return r.Status().Reachable && r.log.count("watching Kubernetes again") > 0 })
	})
	t.Run("the API server is killed as soon as it is followed", func(t *testing.T) {
		for round := range 3 {
			require.NoError(t, c.APIServer.Kill())
			r.eventually(t, "said to be unreachable", func() bool { return !r.Status().Reachable })
			require.NoError(t, c.APIServer.Start(ctx))
			r.eventually(t, "followed again", func() bool { return r.Status().Reachable })
			if round == 1 {
				_, err := c.DeletePods(ctx, cluster.PodLoad{Count: 10, Namespaces: 2, Prefix: "pod-2"})
				require.NoError(t, err)
			}
		}
		r.inSync(t, c)
	})
	t.Run("the API server hangs", func(t *testing.T) {
		require.NoError(t, c.APIServer.Signal(syscall.SIGSTOP))
		defer func() { require.NoError(t, c.APIServer.Signal(syscall.SIGCONT)) }()
		begun := time.Now()
		r.eventually(t, "said to be unreachable", func() bool { return r.problem("pods") != "" })
		t.Logf("found out after %v: %s", time.Since(begun).Round(time.Second), r.problem("pods"))
		require.NoError(t, c.APIServer.Signal(syscall.SIGCONT))
		_, err := c.DeletePods(ctx, cluster.PodLoad{Count: 10, Namespaces: 2, Prefix: "pod-1"})
		require.NoError(t, err)
		r.inSync(t, c)
	})
	r.eventually(t, "followed again", func() bool { return r.Status().Reachable })
	require.Equal(t, len(ofStore(r.store).Pods), seen.count())
}

func TestUnreachableAtStart(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{})
	require.NoError(t, c.APIServer.Kill())
	r := run(t, c.Kubeconfig(), nil)
	r.eventually(t, "a problem", func() bool { return r.problem("nodes") != "" })
	require.False(t, r.store.Complete())
	require.False(t, r.Status().Synced)
	require.NoError(t, c.APIServer.Start(t.Context()))
	r.inSync(t, c)
	r.eventually(t, "all listed", r.store.Complete)
}

// TestRenew: nothing counts as deleted until every resource has been listed again.
func TestRenew(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{})
	_, err := c.MakeNamespaces(t.Context(), 1)
	require.NoError(t, err)
	_, err = c.MakePods(t.Context(), cluster.PodLoad{Count: 5, Nodes: 1})
	require.NoError(t, err)
	r := run(t, c.Kubeconfig(), nil)
	r.inSync(t, c)
	r.Relist()
	require.Len(t, ofStore(r.store).Pods, 5)
	r.eventually(t, "all listed", r.store.Complete)
	r.eventually(t, "each is logged", func() bool { return r.log.count(`msg="listed again"`) == 7 })
	ranges, listed := r.store.ServiceCIDRs()
	require.True(t, listed)
	require.Len(t, ranges, 1, "the API server's own")
	require.Equal(t, "kubernetes", ranges[0].Name)
	require.NotEmpty(t, ranges[0].CIDRs)

	require.NoError(t, c.APIServer.Kill())
	r.Relist()
	r.eventually(t, "a problem", func() bool { return r.problem("pods") != "" })
	require.False(t, r.store.Complete())
	require.Len(t, ofStore(r.store).Pods, 5)
	require.NoError(t, c.APIServer.Start(t.Context()))
	r.eventually(t, "all listed", r.store.Complete)
	r.inSync(t, c)
}

// A service with another service proxy is ignored as long as it has the label.
func TestServicesOfOthers(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{})
	_, err := c.MakeNamespaces(t.Context(), 1)
	require.NoError(t, err)
	services := c.Client().CoreV1().Services(cluster.Namespace(0))
	made, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"service.kubernetes.io/service-proxy-name": "another"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	r := run(t, c.Kubeconfig(), nil)
	r.eventually(t, "all listed", r.store.Complete)
	known := func() bool { return ofStore(r.store).Services[string(made.UID)] != nil }
	require.False(t, known())
	label := func(value string) {
		_, err := services.Patch(t.Context(), "web", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":`+value+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	label("null")
	r.eventually(t, "it is ours", known)
	label(`"another"`)
	r.eventually(t, "it is another's", func() bool { return !known() })
}

func TestRights(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{RBAC: true})
	all := []string{"list", "watch"}
	grant(t, c, rbacv1.PolicyRule{Verbs: all, APIGroups: []string{""}, Resources: []string{"namespaces", "nodes", "pods"}},
		rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}})
	r := run(t, kubeconfig(t, c, time.Hour), nil)

	r.eventually(t, "rights are missing", func() bool {
		return r.problem("services") != "" && r.problem("endpointslices") != "" && r.Status().Reachable
	})
	require.Contains(t, r.problem("services"), `apply deploy/kubernetes/bridge/rbac.yaml, which grants the verb "list" on resource "services" of API group ""`)
	require.Contains(t, r.problem("endpointslices"), `grants the verb "watch" on resource "endpointslices" of API group "discovery.k8s.io"`)
	r.eventually(t, "logged", func() bool { return r.log.count("cannot watch Kubernetes") == 4 }) // network policies and ServiceCIDRs too
	require.False(t, r.store.Complete(), "services were not listed")

	grant(t, c, rbacv1.PolicyRule{Verbs: all, APIGroups: []string{"", "discovery.k8s.io"},
		Resources: []string{"namespaces", "nodes", "pods", "services", "endpointslices"}})
	r.eventually(t, "all rights are there", func() bool {
		return r.store.Complete() && r.problem("endpointslices") == ""
	})
	r.inSync(t, c)
	require.LessOrEqual(t, r.log.count("cannot watch Kubernetes"), 4)
	require.Equal(t, 5, r.log.count("listed"), "a listed resource is not listed again to open a watch")
}

// The token expires, the API server closes the watches, etcd compacts the events since then, and
// then the kubeconfig is replaced.
func TestCredentialsEndAndAreReplaced(t *testing.T) {
	t.Parallel()
	c := cluster.ForTest(t, cluster.Config{RBAC: true})
	ctx := t.Context()
	grant(t, c, rbacv1.PolicyRule{Verbs: []string{"list", "watch"}, APIGroups: []string{"", "discovery.k8s.io"},
		Resources: []string{"namespaces", "nodes", "pods", "services", "endpointslices"}})
	_, err := c.MakeNamespaces(ctx, 1)
	require.NoError(t, err)
	_, err = c.MakePods(ctx, cluster.PodLoad{Count: 5, Nodes: 1})
	require.NoError(t, err)

	var (
		r    *running
		path string
		ends time.Time // of the token
	)
	for lifetime := 10 * time.Second; r == nil; lifetime *= 2 { // a busy machine can need longer than the token lives to read the cluster
		require.Less(t, lifetime, within)
		path, ends = kubeconfig(t, c, lifetime), time.Now().Add(lifetime)
		one, want := run(t, path, nil), ofCluster(t, c)
		require.Eventually(t, func() bool {
			if assert.ObjectsAreEqual(want, ofStore(one.store)) {
				r = one
			}
			return r != nil || time.Now().After(ends)
		}, within, 20*time.Millisecond)
	}
	restart := func() {
		require.NoError(t, c.APIServer.Kill())
		require.NoError(t, c.APIServer.Start(ctx))
	}
	r.eventually(t, "the token ends", func() bool { return time.Now().After(ends) })
	restart()
	refused := func() bool { return strings.Contains(r.problem("pods"), "rejects the credentials") }
	r.eventually(t, "credentials are refused", refused)
	require.Len(t, ofStore(r.store).Pods, 5)

	_, err = c.DeletePods(ctx, cluster.PodLoad{Count: 3})
	require.NoError(t, err)
	_, err = c.MakePods(ctx, cluster.PodLoad{Count: 2, Prefix: "new-", Nodes: 1})
	require.NoError(t, err)
	require.NoError(t, c.CompactEtcd(ctx))
	restart()
	r.eventually(t, "still refused", refused)
	require.NoError(t, os.Rename(kubeconfig(t, c, time.Hour), path))
	r.inSync(t, c)
	r.eventually(t, "no problem is left", func() bool { return r.problem("pods") == "" })
	require.Equal(t, 1, r.log.count(`msg="listed again" resource=pods`))
	require.Equal(t, 1, r.log.count("credentials for Kubernetes were replaced"))
	require.NotContains(t, r.log.text.String(), token(t, path), "no secret is logged")
}
