package kubelet

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	namespace = "work"
	poll      = 100 * time.Millisecond
)

// cluster is a cluster of two nodes, n1 and n2.
type cluster struct {
	*kubelab.Lab
}

// startCluster starts a cluster that has the namespace.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	return inNamespace(t, kubelab.ForTest(t, "n1", "n2"))
}

// inNamespace creates the namespace in a cluster.
func inNamespace(t *testing.T, lab *kubelab.Lab) *cluster {
	t.Helper()
	c := &cluster{lab}
	_, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func(ctx context.Context) error {
		_, err := c.Client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return c
}

// newPod returns a pod with the test program on a node. The pod is ready when it answers kubelet's
// probe.
func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}},
		Spec:       newSpec(node),
	}
}

func newSpec(node string) corev1.PodSpec {
	probe := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}
	return corev1.PodSpec{
		NodeName:                      node,
		TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{
			Name: "main", Image: kubelab.TestImage, ImagePullPolicy: corev1.PullNever, Args: []string{"netexec", "--http-port=8080", "--udp-port=8081"},
			ReadinessProbe: &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 1},
			LivenessProbe:  &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 2, FailureThreshold: 15},
		}},
	}
}

func (c *cluster) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		_, err := c.Client().CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func (c *cluster) delete(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		err := c.Client().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	}
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func(context.Context) error) {
	t.Helper()
	var last error
	if !assertEventually(t, func() bool { last = f(t.Context()); return last == nil }) {
		require.NoError(t, last)
	}
}

// countdown waits until nothing is left to wait for. On a busy machine it can take ten times Patience, while less and less is left.
func countdown(t *testing.T, left func(context.Context) (int, error)) {
	t.Helper()
	end := time.Now().Add(10 * patience.Patience)
	for least := math.MaxInt; least > 0; {
		require.True(t, time.Now().Before(end), "%d are left", least)
		eventually(t, func(ctx context.Context) error {
			n, err := left(ctx)
			if err != nil {
				return err
			}
			if n >= least {
				return fmt.Errorf("%d are left", n)
			}
			least = n
			return nil
		})
	}
}

func assertEventually(t *testing.T, f func() bool) bool {
	deadline := time.Now().Add(patience.Patience)
	for !f() {
		if time.Now().After(deadline) || t.Context().Err() != nil {
			return false
		}
		<-time.After(poll)
	}
	return true
}

// ready waits until pods are ready, and returns their networks.
func (c *cluster) ready(t *testing.T, pods ...*corev1.Pod) (places []kubelab.Place) {
	t.Helper()
	for _, p := range pods {
		eventually(t, func(ctx context.Context) error { return c.isReady(ctx, p.Namespace, p.Name) })
		place, err := c.Pod(t.Context(), p.Namespace, p.Name)
		require.NoError(t, err)
		places = append(places, place)
	}
	return places
}

func (c *cluster) isReady(ctx context.Context, namespace, name string) error {
	p, err := c.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready: %s", name, p.Status.Phase)
}

// settled waits until the switches and the backend have exactly the ports of the running pods, and the nodes have no
// other links.
func (c *cluster) settled(t *testing.T) {
	t.Helper()
	eventually(t, c.isSettled)
}

func (c *cluster) isSettled(ctx context.Context) error {
	want, err := c.living(ctx)
	if err != nil {
		return err
	}
	for _, n := range c.Nodes {
		ports, err := n.Ports(ctx)
		if err != nil {
			return err
		}
		has, links := map[string]string{}, []string{}
		for _, p := range ports {
			has[p.Pod] = p.UID
			links = append(links, p.Name)
		}
		if !maps.Equal(has, want[n.Name]) || len(ports) != len(has) {
			return fmt.Errorf("node %s has the ports %v: expected %v", n.Name, has, want[n.Name])
		}
		own, err := n.OwnPorts(ctx)
		if err != nil {
			return err
		}
		out, err := n.Place().Exec(ctx, "ip", "-brief", "link", "show", "type", "veth")
		if err != nil {
			return err
		}
		var there []string
		for line := range strings.Lines(out) {
			if name, _, _ := strings.Cut(strings.Fields(line)[0], "@"); strings.HasPrefix(name, "tap") && !slices.Contains(own, name) {
				there = append(there, name)
			}
		}
		slices.Sort(links)
		slices.Sort(there)
		if !slices.Equal(links, there) {
			return fmt.Errorf("node %s has the links %v: expected %v", n.Name, there, links)
		}
	}
	return c.hasOnly(ctx, want)
}

// living returns the UIDs of the pods with their own network, by node.
func (c *cluster) living(ctx context.Context) (map[string]map[string]string, error) {
	pods, err := c.Client().CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	living := map[string]map[string]string{}
	for _, p := range pods.Items {
		if p.Spec.HostNetwork || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if living[p.Spec.NodeName] == nil {
			living[p.Spec.NodeName] = map[string]string{}
		}
		living[p.Spec.NodeName][p.Namespace+":"+p.Name] = string(p.UID)
	}
	return living, nil
}

// reach requires that one place gets answers from others.
func reach(t *testing.T, from kubelab.Place, others ...kubelab.Place) {
	t.Helper()
	for _, to := range others {
		eventually(t, func(ctx context.Context) error { return from.Ping(ctx, to.Address) })
	}
}
