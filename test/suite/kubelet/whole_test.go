package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/cni/install"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// probes are packets from pod to pod, within a node and across nodes, to a service, to
// and from nodes, and out of the cluster.
func (c *cluster) probes(t *testing.T, here, near, far kubelab.Place, service netip.Addr) []*kubelab.Probe {
	t.Helper()
	n1, n2, outside := c.Node("n1").Place(), c.Node("n2").Place(), c.Outside()
	for _, p := range []kubelab.Place{here, n1} {
		require.NoError(t, p.AwaitEcho(t.Context(), service))
	}
	var all []*kubelab.Probe
	for _, way := range []struct {
		from kubelab.Place
		name string
		to   netip.Addr
	}{
		{here, "pod of the node", near.Address}, {here, "pod of the other node", far.Address}, {here, "service", service},
		{here, "its node", n1.Address}, {here, "the other node", n2.Address}, {n1, "its pod", here.Address}, {n1, "pod of the other node", far.Address},
		{n1, "service", service}, {far, "outside", outside.Address},
	} {
		p, err := way.from.StartProbe(way.name, way.to)
		require.NoError(t, err)
		all = append(all, p)
	}
	for _, p := range all {
		require.NoError(t, p.Steady(t.Context()))
	}
	return all
}

// traffic is what pods, nodes and a machine outside send each other all the time.
type traffic struct {
	pods   []*corev1.Pod
	places []kubelab.Place
	probes []*kubelab.Probe
}

// startTraffic creates pods and a service, and starts probes.
func (c *cluster) startTraffic(t *testing.T) *traffic {
	t.Helper()
	w := &traffic{pods: []*corev1.Pod{newPod("here", "n1"), newPod("near", "n1"), newPod("far", "n2")}}
	c.create(t, w.pods...)
	w.places = c.ready(t, w.pods...)
	service := c.expose(t, "far", corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 8081, TargetPort: intstr.FromInt32(8081)})
	for _, p := range []kubelab.Place{c.Node("n1").Place(), c.Node("n2").Place(), c.Outside()} {
		echo, err := p.Echo()
		require.NoError(t, err)
		t.Cleanup(func() { _ = echo.Close() })
	}
	w.probes = c.probes(t, w.places[0], w.places[1], w.places[2], service)
	return w
}

// endTraffic deletes what startTraffic has created.
func (c *cluster) endTraffic(t *testing.T, w *traffic) {
	t.Helper()
	c.unexpose(t, "far")
	c.delete(t, w.pods...)
}

// testProbes: traffic does not depend on the control plane. No packet is lost while bridges, agents,
// their etcd, the API server, northd and its database are killed and restarted, and while the southbound database does not answer.
// (It is not killed, because OVN installs all flows again after a reconnect.)
func (c *cluster) testProbes(t *testing.T) {
	w := c.startTraffic(t)
	c.restartControlPlane(t)
	require.Empty(t, lostBy(t, w.probes), "probes that are not named have lost nothing")
	late := newPod("late", "n2") // all parts work again; a new port can cost a packet in the userspace datapath
	c.create(t, late)
	reach(t, c.ready(t, late)[0], w.places...)
	c.endTraffic(t, w)
	c.delete(t, late)
}

// restartControlPlane kills and restarts all parts of the control plane, and waits until they work again.
func (c *cluster) restartControlPlane(t *testing.T) {
	if c.OpenDaylight != nil {
		c.killParts(t)
	} else {
		require.NoError(t, c.OVN.SB.Stop())
		silent := time.Now()
		c.killParts(t)
		<-time.After(time.Until(silent.Add(12 * time.Second))) // OVN would give up after 10 s, if the guide did not tell it to wait
		require.NoError(t, c.OVN.SB.Cont())
		require.NoError(t, c.OVN.Northd.Restart(t.Context()))
		require.NoError(t, c.OVN.NB.Restart(t.Context()))
	}
	require.NoError(t, c.Node("n1").Kill("etcd"))
	require.NoError(t, c.APIServer.Restart(t.Context()))
	for _, part := range []string{"deployment/coe-bridge", "daemonset/coe-bridge-agent", "daemonset/coe-bridge-etcd"} {
		_, err := c.Run(t.Context(), "", "--namespace="+kubelab.Namespace, "rollout", "status", part, "--timeout=90s")
		require.NoError(t, err)
	}
	if c.OpenDaylight == nil {
		require.NoError(t, c.OVN.Sync(t.Context()))
	}
}

// killParts kills the bridges and the agents, and waits until they run again.
func (c *cluster) killParts(t *testing.T) {
	t.Helper()
	for _, n := range c.Nodes {
		for _, program := range []string{"serve", "agent"} {
			require.NoError(t, n.Kill("coe-bridge", program))
			eventually(t, func(context.Context) error {
				if found, err := n.Processes("coe-bridge", program); err != nil || len(found) == 0 {
					return fmt.Errorf("coe-bridge %s is not running again (%w)", program, err)
				}
				return nil
			})
		}
	}
}

// lostBy stops probes, and returns a line for each that has lost packets.
func lostBy(t *testing.T, probes []*kubelab.Probe) (all []string) {
	for _, p := range probes {
		sent, lost := p.Stop()
		require.Greater(t, sent, 100, p.Name)
		if len(lost) > 0 {
			all = append(all, fmt.Sprintf("%s: of %d packets these are lost: %v", p.Name, sent, lost))
		}
	}
	return all
}

// onlyIn fails unless every port of a node is in an existing namespace.
func (c *cluster) onlyIn(ctx context.Context, n *kubelab.Node) error {
	ports, err := n.Ports(ctx)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if !n.Has(p.Netns) {
			return fmt.Errorf("port %s of %s is in a namespace that is gone", p.Name, p.Pod)
		}
	}
	return nil
}

// testMany plugs 100 pods in on a node at the same time, and then out.
func (c *cluster) testMany(t *testing.T) {
	const pods = 100
	replicas := int32(pods)
	labels := map[string]string{"app": "many"}
	spec := newSpec("n1")
	spec.Containers[0].LivenessProbe, spec.Containers[0].ReadinessProbe = nil, nil
	spec.Containers[0].Args = []string{"pause"}
	_, err := c.Client().AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	countdown(t, func(ctx context.Context) (int, error) {
		set, err := c.Client().AppsV1().ReplicaSets(namespace).Get(ctx, "many", metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		return pods - int(set.Status.ReadyReplicas), nil
	})
	c.settled(t)
	list, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=many"})
	require.NoError(t, err)
	for _, p := range list.Items[:10] {
		pod, err := c.Pod(t.Context(), namespace, p.Name)
		require.NoError(t, err)
		reach(t, c.Node("n2").Place(), pod)
	}
	require.NoError(t, c.Client().AppsV1().ReplicaSets(namespace).Delete(t.Context(), "many", metav1.DeleteOptions{}))
	countdown(t, func(ctx context.Context) (int, error) { return c.left(ctx, "many-") })
}

// An agent that is restarted leaves its installed files on the node. An agent that is deleted removes
// them.
func (c *cluster) testUninstall(t *testing.T) {
	var files []string
	before := map[string]os.FileInfo{}
	for _, n := range c.Nodes {
		bin, conf := n.CNI()
		files = append(files, filepath.Join(bin, install.PluginName), filepath.Join(conf, install.ConfigurationName))
	}
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		before[f] = info
	}
	_, err := c.Run(t.Context(), "", "--namespace="+kubelab.Namespace, "rollout", "restart", "daemonset/coe-bridge-agent")
	require.NoError(t, err)
	_, err = c.Run(t.Context(), "", "--namespace="+kubelab.Namespace, "rollout", "status", "daemonset/coe-bridge-agent", "--timeout=90s")
	require.NoError(t, err)
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		require.True(t, os.SameFile(before[f], info), "%s is the same file", f)
	}

	_, err = c.Run(t.Context(), "", "--namespace=kube-system", "scale", "deployment/coredns", "--replicas=0")
	require.NoError(t, err)
	c.settled(t)
	require.NoError(t, c.Uninstall(t.Context()))
	eventually(t, func(context.Context) error {
		for _, f := range files {
			if _, err := os.Stat(f); err == nil {
				return fmt.Errorf("%s is left", f)
			}
		}
		return nil
	})
}
