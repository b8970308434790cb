package kubelet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// frozenFor is the time for which a controller is frozen.
	frozenFor = time.Minute
	// longestGap is the longest time for which running pods may get no answer while their controller is away. It is shorter than the
	// time for which a controller is away.
	longestGap = 10 * time.Second
	// newPodsWithin is the time after a fault within which new pods are ready and reached, on a machine where that takes usualTime
	// without a fault.
	newPodsWithin = time.Minute
	usualTime     = 10 * time.Second
)

// inTime requires that new pods were ready and reached soon after a fault. without is the time that it took without a fault. If that was
// more than usual, the machine is busy, and new pods have longer in proportion.
func inTime(t *testing.T, took, without time.Duration) {
	t.Helper()
	limit := time.Duration(float64(newPodsWithin) * max(1, without.Seconds()/usualTime.Seconds()))
	t.Logf("new pods are ready and reached %.1f s after the fault, and without a fault after %.1f s; limit %.0f s", took.Seconds(), without.Seconds(), limit.Seconds())
	require.LessOrEqual(t, took, limit)
}

// fault is a fault of what programs the switches.
type fault struct {
	begin func(*testing.T)
	end   func(*testing.T) // returns when all parts run again
	gap   time.Duration    // the longest time for which running pods may get no answer
}

// central returns the processes that program the switches of all nodes.
func (c *cluster) central() []*ovnhost.Process {
	if c.OpenDaylight != nil {
		return []*ovnhost.Process{c.OpenDaylight.Process()}
	}
	return []*ovnhost.Process{c.OVN.NB.Process, c.OVN.SB.Process, c.OVN.Northd}
}

func (c *cluster) killCentral(t *testing.T) {
	t.Helper()
	for _, p := range c.central() {
		require.NoError(t, p.Kill())
	}
}

// startCentral starts the killed processes that program the switches, with their data.
func (c *cluster) startCentral(ctx context.Context) error {
	if c.OpenDaylight != nil {
		return c.OpenDaylight.Start(ctx)
	}
	for _, p := range c.central() {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// testFrozen freezes OpenDaylight, or OVN's databases and northd. Their connections stay open.
func (c *cluster) testFrozen(t *testing.T) {
	var since time.Time
	c.testFault(t, fault{gap: longestGap, begin: func(t *testing.T) {
		since = time.Now()
		for _, p := range c.central() {
			require.NoError(t, p.Stop())
		}
	}, end: func(t *testing.T) {
		<-time.After(time.Until(since.Add(frozenFor)))
		for _, p := range c.central() {
			require.NoError(t, p.Cont())
		}
	}})
}

// testKilled kills OpenDaylight, or OVN's databases and northd, and starts them with their data.
func (c *cluster) testKilled(t *testing.T) {
	c.testFault(t, fault{gap: longestGap, begin: c.killCentral, end: func(t *testing.T) {
		require.NoError(t, c.startCentral(t.Context()))
	}})
}

// testDatastoreLost kills OpenDaylight, and starts it with an empty datastore. Some pods cannot reach others until the switches have
// forgotten their flows.
func (c *cluster) testDatastoreLost(t *testing.T) {
	c.testFault(t, fault{gap: patience.Patience, begin: c.killCentral, end: func(t *testing.T) {
		require.NoError(t, c.OpenDaylight.Wipe(t.Context()))
	}})
}

// testFault: running pods are answered during a fault. Pods that a Deployment gets during the fault and after it are ready soon
// afterwards, are reached, and find each other by name. Nothing is doubled.
func (c *cluster) testFault(t *testing.T, f fault) {
	const name, replicas = "grows", 2
	w := c.startTraffic(t)
	c.deploy(t, name, "", 0)
	without := c.grown(t, name, replicas)
	before := c.addresses(t)

	f.begin(t)
	c.scale(t, name, replicas+1)
	f.end(t)
	inTime(t, c.grown(t, name, replicas+2), without)
	over := time.Now()
	for _, p := range w.probes {
		require.NoError(t, p.Answered(t.Context()))
	}
	t.Logf("all are answered %.1f s later", time.Since(over).Seconds())
	lost := lostBy(t, w.probes)
	for _, p := range w.probes {
		t.Logf("%s: longest time without an answer %.2f s", p.Name, p.Gap().Seconds())
		require.LessOrEqual(t, p.Gap(), f.gap, "%s: %v", p.Name, lost)
	}
	c.settled(t)
	eventually(t, c.hasTunnels)
	c.keptAddresses(t, before)
	c.testNames(t)
	c.endTraffic(t, w)
	c.undeploy(t, name)
}

// grown scales a Deployment, and waits until all its pods are ready and reach nodes and each other. It returns how long that took.
func (c *cluster) grown(t *testing.T, name string, replicas int32) time.Duration {
	t.Helper()
	begun := time.Now()
	c.scale(t, name, replicas)
	c.awaitReplicas(t, name, replicas)
	list, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(t, err)
	places := []kubelab.Place{c.Node("n1").Place(), c.Node("n2").Place()}
	for _, p := range list.Items {
		place, err := c.Pod(t.Context(), namespace, p.Name)
		require.NoError(t, err)
		places = append(places, place)
	}
	for _, from := range places {
		reach(t, from, places[len(c.Nodes):]...)
	}
	return time.Since(begun)
}

// addresses returns the addresses of the running pods by their UIDs.
func (c *cluster) addresses(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.Client().CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := map[string]string{}
	for _, p := range list.Items {
		if !p.Spec.HostNetwork {
			all[string(p.UID)] = p.Status.PodIP
		}
	}
	return all
}

// keptAddresses requires that the pods of before are there, with their addresses. A pod whose sandbox kubelet makes again has none until
// then.
func (c *cluster) keptAddresses(t *testing.T, before map[string]string) {
	t.Helper()
	eventually(t, func(context.Context) error {
		now := c.addresses(t)
		for uid, address := range before {
			if now[uid] != address {
				return fmt.Errorf("pod %s has the address %q, want %s", uid, now[uid], address)
			}
		}
		return nil
	})
}

// A node with its switch loses power, and starts again with the data on its disk.
func (c *cluster) testReboot(t *testing.T) {
	c.rebooted(t, "n2", func() {
		node := c.Node("n2")
		require.NoError(t, node.Down(t.Context()))
		require.NoError(t, node.Up(t.Context()))
	})
}

// All machines lose power at the same time: the nodes, what programs their switches, and the control plane of Kubernetes. They start
// again with the data on their disks.
func (c *cluster) testRebootAll(t *testing.T) {
	c.rebooted(t, "", func() {
		plane := []*ovnhost.Process{c.Etcd, c.APIServer, c.Controllers, c.Scheduler}
		for _, n := range c.Nodes {
			require.NoError(t, n.Down(t.Context()))
		}
		for _, p := range plane {
			require.NoError(t, p.Kill())
		}
		c.killCentral(t)

		started := make(chan error, 1)
		go func() { started <- c.startCentral(t.Context()) }()
		for _, p := range plane {
			require.NoError(t, p.Start(t.Context()))
		}
		for _, n := range c.Nodes {
			require.NoError(t, n.Up(t.Context()))
		}
		require.NoError(t, <-started)
	})
}

// rebooted reboots nodes with pods of a Deployment. Its pods, and new ones, are ready soon afterwards and reached. Nothing is doubled.
// The Deployment is on one node, or on all.
func (c *cluster) rebooted(t *testing.T, node string, reboot func()) {
	const name, replicas = "stays", 4
	c.deploy(t, name, node, 0)
	without := c.grown(t, name, replicas)
	far := newPod("far", "n1")
	c.create(t, far)
	c.ready(t, far)
	before := c.addresses(t)

	reboot()
	over := time.Now()
	for _, n := range c.Nodes {
		eventually(t, func(ctx context.Context) error { return c.onlyIn(ctx, n) }) // after a reboot pods run in new sandboxes
	}
	require.NoError(t, c.AwaitReady(t.Context()))
	c.grown(t, name, replicas+1)
	inTime(t, time.Since(over), without)
	c.settled(t)
	eventually(t, c.hasTunnels)
	c.keptAddresses(t, before)
	place := c.ready(t, far)[0]
	for _, n := range c.Nodes {
		reach(t, n.Place(), place)
	}
	c.testNames(t)
	c.delete(t, far)
	c.undeploy(t, name)
}
