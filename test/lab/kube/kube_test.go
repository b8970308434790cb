package kube_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	patience = 2 * time.Minute
	interval = 50 * time.Millisecond
)

var everywhere = metav1.ListOptions{}

func TestLoadsAndFaults(t *testing.T) {
	c := kube.ForTest(t, kube.Config{})
	_, err := c.MakeNodes(t.Context(), 5)
	require.NoError(t, err)
	_, err = c.MakeNamespaces(t.Context(), 4)
	require.NoError(t, err)

	t.Run("pods are watched", func(t *testing.T) {
		pods := c.Client().CoreV1().Pods(metav1.NamespaceAll)
		w := watchPods(t, pods)
		load := kube.PodLoad{Count: 200, Namespaces: 4, Nodes: 5, Labels: map[string]string{"app": "web"}}
		made, err := c.MakePods(t.Context(), load)
		require.NoError(t, err)
		require.Len(t, made.Calls, 200)
		t.Logf("made %s", made)
		places := map[string]int{}
		for range 200 {
			e := next(t, w)
			require.Equal(t, watch.Added, e.Type)
			pod := e.Object.(*corev1.Pod)
			require.Equal(t, "web", pod.Labels["app"])
			places[pod.Namespace+" "+pod.Spec.NodeName]++
		}
		require.Len(t, places, 4*5, "every namespace is on every node")

		deleted, err := c.DeletePods(t.Context(), load)
		require.NoError(t, err)
		t.Logf("deleted %s", deleted)
		for gone := 0; gone < 200; {
			e := next(t, w)
			require.NotNil(t, e.Object.(*corev1.Pod).DeletionTimestamp)
			if e.Type == watch.Deleted {
				gone++
			}
		}
		list, err := pods.List(t.Context(), everywhere)
		require.NoError(t, err)
		require.Empty(t, list.Items)
	})

	t.Run("a pod's status is set in the kubelet's place", func(t *testing.T) {
		_, err := c.MakePods(t.Context(), kube.PodLoad{Count: 1, Nodes: 1})
		require.NoError(t, err)
		address := netip.MustParseAddr("10.1.2.3")
		for _, ready := range []bool{true, false} {
			require.NoError(t, c.SetPodStatus(t.Context(), kube.Namespace(0), "pod-0", kube.PodStatus{
				Phase: corev1.PodRunning, Addresses: []netip.Addr{address}, Ready: ready,
			}))
			pod, err := c.Client().CoreV1().Pods(kube.Namespace(0)).Get(t.Context(), "pod-0", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
			require.Equal(t, address.String(), pod.Status.PodIP)
			require.Equal(t, ready, podReady(pod))
		}
	})

	t.Run("endpoints flap", func(t *testing.T) {
		load := kube.ServiceLoad{Count: 10, Endpoints: 4, Namespaces: 2}
		_, err := c.MakeServices(t.Context(), load)
		require.NoError(t, err)
		require.Equal(t, 40, readyEndpoints(t, c))
		_, err = c.FlapEndpoints(t.Context(), load, 1)
		require.NoError(t, err)
		require.Equal(t, 20, readyEndpoints(t, c))
		_, err = c.FlapEndpoints(t.Context(), load, 0)
		require.NoError(t, err)
		require.Equal(t, 40, readyEndpoints(t, c))
	})

	t.Run("the API server is killed and comes back with its data", func(t *testing.T) {
		require.NoError(t, c.APIServer.Kill())
		require.NoError(t, c.APIServer.Kill(), "it is dead already")
		require.Eventually(t, func() bool { // the client may still have a connection
			return errors.Is(getPod(t, c), syscall.ECONNREFUSED)
		}, patience, interval)
		require.NoError(t, c.APIServer.Start(t.Context()))
		require.Eventually(t, func() bool { return getPod(t, c) == nil }, patience, interval)
		require.Error(t, c.APIServer.Start(t.Context()), "it runs already")
	})

	t.Run("etcd is killed and comes back with its data", func(t *testing.T) {
		require.NoError(t, c.Etcd.Kill())
		require.Error(t, getPod(t, c))
		require.NoError(t, c.Etcd.Start(t.Context()))
		require.Eventually(t, func() bool { return getPod(t, c) == nil }, patience, interval)
	})

	t.Run("a stopped API server answers nothing until it continues", func(t *testing.T) {
		require.NoError(t, c.APIServer.Signal(syscall.SIGSTOP))
		require.ErrorIs(t, getPod(t, c), context.DeadlineExceeded)
		require.NoError(t, c.APIServer.Signal(syscall.SIGCONT))
		require.Eventually(t, func() bool { return getPod(t, c) == nil }, patience, interval)
	})
}

func TestCompaction(t *testing.T) {
	c := kube.ForTest(t, kube.Config{})
	_, err := c.MakeNamespaces(t.Context(), 2)
	require.NoError(t, err)
	namespaces := c.Client().CoreV1().Namespaces()
	page, err := namespaces.List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	_, err = c.MakePods(t.Context(), kube.PodLoad{Count: 5})
	require.NoError(t, err)

	require.NoError(t, c.APIServer.Kill())
	require.NoError(t, c.CompactEtcd(t.Context()))
	require.NoError(t, c.APIServer.Start(t.Context()))

	require.True(t, apierrors.IsResourceExpired(watchFrom(t, c, page.ResourceVersion)))
	_, err = namespaces.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.Continue})
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Kubernetes")
	}
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	_, err := kube.Start(t.Context(), kube.Config{ServiceCIDRs: []netip.Prefix{cidr, cidr, cidr}})
	require.ErrorContains(t, err, "start kube-apiserver: it ended with exit status 1")
	require.ErrorContains(t, err, "--service-cluster-ip-range", "the last of its log")
}

// watchPods watches pods from now on. The API server closes the watch of a client that does not keep up; the returned
// watch goes on from the last event that it has got, as an informer does.
func watchPods(t *testing.T, pods corev1client.PodInterface) watch.Interface {
	list, err := pods.List(t.Context(), everywhere)
	require.NoError(t, err)
	source := cache.ToListerWatcherWithContext(&cache.ListWatch{WatchFuncWithContext: pods.Watch})
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, source)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// watchFrom returns the error that ends a watch for pods from an old version.
func watchFrom(t *testing.T, c *kube.ControlPlane, version string) error {
	w, err := c.Client().CoreV1().Pods(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	e := next(t, w)
	require.Equal(t, watch.Error, e.Type)
	return apierrors.FromObject(e.Object)
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		require.True(t, open, "the API server closed the watch")
		return e
	case <-time.After(patience):
		require.Fail(t, "no event")
		return watch.Event{}
	}
}

// getPod reads an existing pod, with a short timeout.
func getPod(t *testing.T, c *kube.ControlPlane) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Client().CoreV1().Pods(kube.Namespace(0)).Get(ctx, "pod-0", metav1.GetOptions{})
	return err
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readyEndpoints(t *testing.T, c *kube.ControlPlane) int {
	t.Helper()
	slices, err := c.Client().DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(t.Context(), everywhere)
	require.NoError(t, err)
	n := 0
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if s.Namespace != metav1.NamespaceDefault && *e.Conditions.Ready {
				n++
			}
		}
	}
	return n
}
