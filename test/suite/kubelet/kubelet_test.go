package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// TestCluster runs scenarios on the real nodes of one cluster, one after the other.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	c.scenarios(t, []scenario{
		{"pods have their interface", c.testInterface},
		{"the agent has no privileges", c.testPrivileges},
		{"static pods are wired", c.testStaticPod},
		{"a Deployment is scaled", c.testScale},
		{"a sandbox is made again", c.testSandbox},
		{"kubelet is killed in mid-ADD", func(t *testing.T) { c.testKilledInAdd(t, "hyperkube", "kubelet") }},
		{"the agent is killed in mid-ADD", func(t *testing.T) { c.testKilledInAdd(t, "coe-bridge", "agent") }},
		{"connectivity test", c.testConnectivity},
		{"connectivity test finds a small MTU", c.testConnectivityFails},
		{"the switch is restarted", c.testSwitch},
		{"node ports", c.testNodePorts},
		{"nobody loses a packet", c.testProbes},
		{"a node is rebooted", c.testReboot},
		{"100 pods at once", c.testMany},
		{"Multus", c.testMultus},
		{"the agent needs its capabilities", c.testCapabilities},
		{"namespaces are isolated", c.testIsolation},
		{"coe-bridge is uninstalled", c.testUninstall},
	})
}

// TestOnRealOpenDaylight runs the scenarios that do not need OVN on nodes that a real OpenDaylight connects.
func TestOnRealOpenDaylight(t *testing.T) {
	c := inNamespace(t, kubelab.OnOpenDaylight(t, odl.Oxygen, "n1", "n2"))
	c.scenarios(t, []scenario{
		{"pods have their interface", c.testInterface},
		{"node ports", c.testNodePorts},
		{"pods are replaced", c.testRoll},
		{"static pods are wired", c.testStaticPod},
		{"a Deployment is scaled", c.testScale},
		{"a sandbox is made again", c.testSandbox},
	})
}

type scenario struct {
	name string
	run  func(*testing.T)
}

// scenarios runs scenarios until one fails: later ones would fail for the same reason. After each, the switches have exactly the
// ports of the running pods.
func (c *cluster) scenarios(t *testing.T, all []scenario) {
	for _, one := range all {
		if !t.Run(one.name, func(t *testing.T) {
			one.run(t)
			c.settled(t)
		}) {
			return
		}
	}
}

// A pod has the address and the link that the bridge has chosen. It reaches all other pods, and
// kubelet's probes reach it.
func (c *cluster) testInterface(t *testing.T) {
	pods := []*corev1.Pod{newPod("a", "n1"), newPod("b", "n1"), newPod("c", "n2")}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	c.settled(t)

	told, err := c.Ask(t.Context(), "get", "interfaces")
	require.NoError(t, err)
	for i, p := range places {
		require.Regexp(t, `(?m)^work:`+pods[i].Name+` .* `+p.Address.String()+` .* yes$`, told)
		link, err := p.Exec(t.Context(), "ip", "-brief", "address", "show", "dev", "eth0")
		require.NoError(t, err)
		require.Contains(t, link, " "+p.Address.String()+"/")
		reach(t, p, places...)
		for _, n := range c.Nodes {
			reach(t, p, n.Place())
			reach(t, n.Place(), p)
		}
		reach(t, p, c.Outside())
	}
	c.delete(t, pods...)
}

// A static pod, which kubelet reads from a file, is plugged in with the UID that kubelet gives it.
func (c *cluster) testStaticPod(t *testing.T) {
	const manifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"static","namespace":"work"},"spec":{"terminationGracePeriodSeconds":0,"containers":[
{"name":"main","image":"` + kubelab.TestImage + `","imagePullPolicy":"Never","args":["netexec","--http-port=8080"],"readinessProbe":{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":1}}]}}`
	file := filepath.Join(c.Node("n2").StaticPods(), "static.json")
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o644))
	place := c.ready(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "static-n2", Namespace: namespace}})[0]
	reach(t, c.Node("n1").Place(), place)
	c.settled(t)
	require.NoError(t, os.Remove(file))
	eventually(t, func(ctx context.Context) error { return c.isGone(ctx, "static-n2") })
}

func (c *cluster) isGone(ctx context.Context, name string) error {
	list, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if strings.HasPrefix(p.Name, name) {
			return fmt.Errorf("pod %s is there", p.Name)
		}
	}
	return nil
}

func (c *cluster) deploy(t *testing.T, name, node string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	spec := newSpec("")
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	_, err := c.Client().AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (c *cluster) scale(t *testing.T, name string, replicas int32) {
	t.Helper()
	_, err := c.Client().AppsV1().Deployments(namespace).UpdateScale(t.Context(), name, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
	}, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// awaitReplicas waits until exactly a number of replicas exist and are ready.
func (c *cluster) awaitReplicas(t *testing.T, name string, replicas int32) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		d, err := c.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ReadyReplicas != replicas || d.Status.Replicas != replicas {
			return fmt.Errorf("%d of %d replicas are ready: expected %d", d.Status.ReadyReplicas, d.Status.Replicas, replicas)
		}
		return nil
	})
}

func (c *cluster) undeploy(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.Client().AppsV1().Deployments(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, func(ctx context.Context) error { return c.isGone(ctx, name+"-") })
}

func (c *cluster) testScale(t *testing.T) {
	c.deploy(t, "scaled", "", 2)
	for _, replicas := range []int32{2, 12, 3} {
		c.scale(t, "scaled", replicas)
		c.awaitReplicas(t, "scaled", replicas)
		c.settled(t)
	}
	c.undeploy(t, "scaled")
}

// All pods of a Deployment are replaced. Meanwhile a pod and a node send one request after the other to the service, each with a
// connection of its own. All are answered. A pod that ends serves until nobody is led to it any more.
func (c *cluster) testRoll(t *testing.T) {
	const name, replicas = "rolled", 4
	c.deploy(t, name, "", replicas)
	client := newPod("client", "n1")
	c.create(t, client)
	deployments := c.Client().AppsV1().Deployments(namespace)
	service, err := c.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = deployments.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(
		`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":6,"containers":[{"name":"main","lifecycle":{"preStop":{"sleep":{"seconds":5}}}}]}}}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	rollout := func() error {
		_, err := c.Run(t.Context(), "", "--namespace="+namespace, "rollout", "status", "deployment/"+name, "--timeout=110s")
		return err
	}
	require.NoError(t, rollout())
	url := "http://" + service.Spec.ClusterIP + "/hostname"
	clients := []kubelab.Place{c.ready(t, client)[0], c.Node("n2").Place()}
	for _, from := range clients {
		eventually(t, func(ctx context.Context) error { _, err := from.Get(ctx, url); return err })
	}

	_, err = c.Run(t.Context(), "", "--namespace="+namespace, "rollout", "restart", "deployment/"+name)
	require.NoError(t, err)
	rolled := make(chan error, 1)
	go func() { rolled <- rollout() }()
	for requests := 0; ; requests++ {
		for _, from := range clients {
			_, err := from.Get(t.Context(), url)
			require.NoError(t, err, "after %d requests", requests)
		}
		select {
		case err := <-rolled:
			require.NoError(t, err)
			require.Greater(t, requests, replicas)
			require.NoError(t, c.Client().CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
			c.undeploy(t, name)
			c.delete(t, client)
			return
		default:
		}
	}
}

// The sandbox of a pod ends. Kubelet creates a new one, in which the pod has the same address.
func (c *cluster) testSandbox(t *testing.T) {
	pod := newPod("sandbox", "n1")
	c.create(t, pod)
	before := c.ready(t, pod)[0]
	require.NoError(t, c.Node("n1").KillSandbox(before))
	var after kubelab.Place
	eventually(t, func(ctx context.Context) (err error) {
		if after, err = c.Pod(ctx, namespace, "sandbox"); err == nil && after == before {
			return fmt.Errorf("the sandbox is the former one")
		}
		return err
	})
	after = c.ready(t, pod)[0]
	require.Equal(t, before.Address, after.Address)
	reach(t, c.Node("n2").Place(), after)
	c.settled(t)
	c.delete(t, pod)
}

// While an ADD waits for OVN, its caller or the agent is killed. After the restart the pod has its
// network, and only one port.
func (c *cluster) testKilledInAdd(t *testing.T, argv ...string) {
	node := c.Node("n1")
	controller := c.OVN.Host("n1").Controller
	require.NoError(t, controller.Stop())
	pod := newPod("cut", "n1")
	c.create(t, pod)
	eventually(t, func(ctx context.Context) error {
		ports, err := node.Ports(ctx)
		for _, p := range ports {
			if p.Pod == "work:cut" {
				return nil
			}
		}
		return fmt.Errorf("no port of the pod (%w)", err)
	})
	require.NoError(t, node.Kill(argv...))
	require.NoError(t, controller.Cont())
	place := c.ready(t, pod)[0]
	reach(t, place, c.Node("n2").Place())
	c.settled(t)
	c.delete(t, pod)
}

// The daemons of Open vSwitch and OVN are restarted. The traffic of existing pods works, and new pods
// are plugged in.
func (c *cluster) testSwitch(t *testing.T) {
	old, far := newPod("old", "n1"), newPod("far", "n2")
	c.create(t, old, far)
	places := c.ready(t, old, far)
	for _, p := range []interface{ Restart(context.Context) error }{c.OVN.Host("n1").VSwitchd, c.OVN.Host("n1").Controller, c.OVN.Host("n1").OVSDB} {
		require.NoError(t, p.Restart(t.Context()))
		reach(t, places[1], places[0])
		reach(t, c.Node("n1").Place(), places[0], places[1])
		another := newPod("another", "n1")
		c.create(t, another)
		reach(t, c.ready(t, another)[0], places...)
		c.delete(t, another)
		eventually(t, func(ctx context.Context) error { return c.isGone(ctx, "another") })
	}
	c.delete(t, old, far)
}
