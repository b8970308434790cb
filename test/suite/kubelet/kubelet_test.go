package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestCluster runs the scenarios for OVN on the real nodes of one cluster, one after the other.
func TestCluster(t *testing.T) {
	startCluster(t).scenarios(t, onOVN)
}

// TestOnRealOpenDaylight runs the scenarios for OpenDaylight on nodes that a real OpenDaylight of each release connects.
func TestOnRealOpenDaylight(t *testing.T) {
	for _, release := range odl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			inNamespace(t, kubelab.OnOpenDaylight(t, release, "n1", "n2")).scenarios(t, onOpenDaylight)
		})
	}
}

// backends are backends on which a scenario makes sense.
type backends uint

const (
	onOVN backends = 1 << iota
	onOpenDaylight
	onBoth = onOVN | onOpenDaylight
)

type scenario struct {
	name string
	on   backends
	run  func(*testing.T)
}

func (c *cluster) all() []scenario {
	return []scenario{
		{"pods have their interface", onBoth, c.testInterface},
		{"the agent has no privileges", onOVN, c.testPrivileges}, // it needs IPv6 of pods
		{"static pods are wired", onBoth, c.testStaticPod},
		{"a Deployment is scaled", onBoth, c.testScale},
		{"a sandbox is made again", onBoth, c.testSandbox},
		{"kubelet is killed in mid-ADD", onBoth, func(t *testing.T) { c.testKilledInAdd(t, "hyperkube", "kubelet") }},
		{"the agent is killed in mid-ADD", onBoth, func(t *testing.T) { c.testKilledInAdd(t, "coe-bridge", "agent") }},
		{"connectivity test", onOVN, c.testConnectivity},
		{"connectivity test finds a small MTU", onOVN, c.testConnectivityFails},
		{"the switch is restarted", onBoth, c.testSwitch},
		{"node ports", onBoth, c.testNodePorts},
		{"pods are replaced", onBoth, c.testRoll},
		{"names are resolved", onBoth, c.testNames},
		{"nobody loses a packet", onBoth, c.testProbes},
		{"the controller is frozen for a minute", onBoth, c.testFrozen},
		{"the controller is killed", onBoth, c.testKilled},
		{"the datastore is lost", onOpenDaylight, c.testDatastoreLost}, // of OVN: test/suite/ovncluster
		{"a node is rebooted", onBoth, c.testReboot},
		{"all machines are rebooted", onBoth, c.testRebootAll},
		{"100 pods at once", onOVN, c.testMany},
		{"Multus", onOVN, c.testMultus},
		{"the agent needs its capabilities", onOVN, c.testCapabilities},
		{"namespaces are isolated", onBoth, c.testIsolation},
		{"coe-bridge is uninstalled", onBoth, c.testUninstall},
	}
}

// scenarios runs the scenarios for a backend until one fails: later ones would fail for the same reason. After each, the switches and
// the backend have exactly the ports of the running pods.
func (c *cluster) scenarios(t *testing.T, backend backends) {
	for _, one := range c.all() {
		if one.on&backend == 0 {
			continue
		}
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
	n, err := c.left(ctx, name)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d pods %s are there", n, name)
	}
	return err
}

// left returns how many pods have a name that begins so.
func (c *cluster) left(ctx context.Context, name string) (n int, err error) {
	list, err := c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, p := range list.Items {
		if strings.HasPrefix(p.Name, name) {
			n++
		}
	}
	return n, nil
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
	address := c.expose(t, name, corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(8080)})
	_, err := deployments.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(
		`{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":6,"containers":[{"name":"main","lifecycle":{"preStop":{"sleep":{"seconds":5}}}}]}}}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	rollout := func() error {
		_, err := c.Run(t.Context(), "", "--namespace="+namespace, "rollout", "status", "deployment/"+name, "--timeout=110s")
		return err
	}
	require.NoError(t, rollout())
	url := "http://" + address.String() + "/hostname"
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
			require.Positive(t, requests) // a busy machine does few meanwhile
			c.unexpose(t, name)
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

// While an ADD waits for OVN or OpenDaylight, its caller or the agent is killed. After the restart the pod has its
// network, and only one port.
func (c *cluster) testKilledInAdd(t *testing.T, argv ...string) {
	node := c.Node("n1")
	controller := c.OVN.Host("n1").Controller
	if c.OpenDaylight != nil {
		controller = c.OpenDaylight.Process()
	}
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
// are plugged in soon afterwards.
func (c *cluster) testSwitch(t *testing.T) {
	old, far := newPod("old", "n1"), newPod("far", "n2")
	c.create(t, old, far)
	places := c.ready(t, old, far)
	without := c.comesAndGoes(t, places)
	for _, p := range c.OVN.Host("n1").Processes() {
		require.NoError(t, p.Restart(t.Context()))
		over := time.Now()
		reach(t, places[1], places[0])
		reach(t, c.Node("n1").Place(), places[0], places[1])
		running := time.Since(over)
		took := running + c.comesAndGoes(t, places)
		t.Logf("%s is back: pods are answered after %.1f s", p.Name, running.Seconds())
		inTime(t, took, without)
	}
	c.delete(t, old, far)
}

// comesAndGoes creates a pod that reaches others, and deletes it. It returns how long the pod took until it was ready and answered.
func (c *cluster) comesAndGoes(t *testing.T, others []kubelab.Place) time.Duration {
	t.Helper()
	begun := time.Now()
	another := newPod("another", "n1")
	c.create(t, another)
	reach(t, c.ready(t, another)[0], others...)
	took := time.Since(begun)
	c.delete(t, another)
	eventually(t, func(ctx context.Context) error { return c.isGone(ctx, "another") })
	return took
}

// A pod finds a service by its name, with the name server of the cluster, and without a wait for a second request.
func (c *cluster) testNames(t *testing.T) {
	const name = "named"
	pods := []*corev1.Pod{newPod("client", "n1"), newPod("client2", "n2"), newPod(name, "n2")}
	c.create(t, pods...)
	places := c.ready(t, pods...)
	c.expose(t, name, corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(8080)})
	for i, client := range places[:2] {
		for _, host := range []string{name, name + "." + namespace + ".svc.cluster.local"} {
			eventually(t, func(ctx context.Context) error { return c.resolves(ctx, pods[i].Spec.NodeName, client, host, name) })
		}
	}
	c.unexpose(t, name)
	c.delete(t, pods...)
}

// resolves fails unless a pod of a node fetches a page from the pod of a service by the name of the service.
func (c *cluster) resolves(ctx context.Context, node string, client kubelab.Place, host, pod string) error {
	answer, err := c.Node(node).Place().Dial(ctx, client, host, 80, "hostname")
	if err == nil && answer != pod {
		err = fmt.Errorf("%s answers for %s", answer, host)
	}
	return err
}

// expose creates the service of the pods that have the label app with its name.
func (c *cluster) expose(t *testing.T, name string, ports ...corev1.ServicePort) (address netip.Addr) {
	t.Helper()
	service, err := c.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: ports},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return netip.MustParseAddr(service.Spec.ClusterIP)
}

func (c *cluster) unexpose(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}
