package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// clustered has two replicas that watch the same Kubernetes cluster. The second one uses a proxy.
type clustered struct {
	t     *testing.T
	plane *kube.ControlPlane
	etcd  *cluster
	nb    *ovsdb.Server
	proxy *proxy
	all   []*replica // the first one leads at the start
}

const (
	clusterNodes      = 10
	clusterNamespaces = 10
)

func startClustered(t *testing.T, lag time.Duration) *clustered {
	t.Helper()
	if testing.Short() {
		t.Skip("needs child processes: run without -short")
	}
	c := &clustered{t: t, plane: kube.ForTest(t, kube.Config{}), etcd: startEtcd(t, 1), nb: ovsdb.Start(t)}
	_, err := c.plane.MakeNodes(t.Context(), clusterNodes)
	require.NoError(t, err)
	_, err = c.plane.MakeNamespaces(t.Context(), clusterNamespaces)
	require.NoError(t, err)
	p, kubeconfig := throughProxy(t, c.plane, lag)
	c.proxy = p
	for i, k := range []string{c.plane.Kubeconfig(), kubeconfig} {
		r := startReplica(t, fmt.Sprintf("replica %d", i), "--kubeconfig", k, "--pool", "10.32.0.0/14", "--annotate-qps", "0",
			"--etcd-endpoints", strings.Join(c.etcd.Endpoints(), ","), "--backend", "ovn", "--ovn-nb", c.nb.Endpoint())
		c.all = append(c.all, r)
		await(t, patience, r.name+" knows all", func() error { return r.heardAll() })
	}
	c.firstLeads()
	return c
}

// firstLeads lets the first replica lead. On a busy machine an election can have changed that.
func (c *clustered) firstLeads() {
	c.t.Helper()
	await(c.t, patience, "the first replica leads", func() error {
		err := c.all[0].leads(true)
		if other := c.all[1]; err != nil && other.leads(true) == nil {
			other.Signal(syscall.SIGTERM)
			_ = other.Wait()
			other.Start()
			await(c.t, patience, other.name+" knows all", other.heardAll)
		}
		return err
	})
}

// heardAll returns nil if the status says that every source has been listed.
func (r *replica) heardAll() error {
	var st struct {
		Sources []struct {
			Name     string `json:"name"`
			Complete bool   `json:"complete"`
		} `json:"source"`
	}
	if err := r.read("operational/coe-status:status", &st); err != nil {
		return err
	}
	for _, s := range st.Sources {
		if !s.Complete {
			return fmt.Errorf("%s is not complete", s.Name)
		}
	}
	return nil
}

func (c *clustered) makePods(count int, prefix string) {
	_, err := c.plane.MakePods(c.t.Context(), c.load(count, prefix))
	require.NoError(c.t, err)
}

func (*clustered) load(count int, prefix string) kube.PodLoad {
	return kube.PodLoad{Count: count, Namespaces: clusterNamespaces, Nodes: clusterNodes, Prefix: prefix}
}

// awaitPorts waits until the database has a number of ports of pods.
func (c *clustered) awaitPorts(count int) {
	await(c.t, patience, "ports", func() error {
		if n := len(ports(c.t, c.nb, "name")); n != count {
			return fmt.Errorf("there are %d ports, want %d", n, count)
		}
		return nil
	})
}

// lost follows the leases. The returned function stops that, and returns the leases that were released
// or deleted.
func (c *clustered) lost() func() []string {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	var lost []string
	events := c.etcd.client().Watch(ctx, leasePrefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer close(done)
		for answer := range events {
			for _, event := range answer.Events {
				var lease struct {
					Pod      string `json:"pod"`
					Released int64  `json:"released"`
				}
				if event.Type == clientv3.EventTypeDelete {
					lost = append(lost, "deleted "+string(event.Kv.Key))
				} else if json.Unmarshal(event.Kv.Value, &lease) == nil && lease.Released != 0 {
					lost = append(lost, "released "+lease.Pod)
				}
			}
		}
	}()
	return func() []string {
		cancel()
		<-done
		return lost
	}
}

// takeOver ends the leader, and waits until the other replica leads.
func (c *clustered) takeOver(signal syscall.Signal) (was, is *replica) {
	c.t.Helper()
	was, is = c.all[0], c.all[1]
	if was.leads(true) != nil {
		was, is = is, was
	}
	was.Signal(signal)
	_ = was.Wait() // it may have been killed
	await(c.t, patience, is.name+" leads", func() error { return is.leads(true) })
	return was, is
}

// A replica that is cut off from the API server, and so does not know of new pods, takes over. It
// removes nothing of these pods.
func TestLeaderIsCutOff(t *testing.T) {
	c := startClustered(t, 0)
	lost := c.lost()
	c.makePods(20, "before-")
	c.awaitPorts(20)
	c.firstLeads()
	c.proxy.cut(true)
	c.makePods(20, "unheard-")
	c.awaitPorts(40)
	_, leader := c.takeOver(syscall.SIGKILL)
	require.Error(t, leader.heardAll())
	for range 100 {
		require.Len(t, ports(t, c.nb, "name"), 40)
	}
	require.Empty(t, lost())

	_, err := c.plane.DeletePods(t.Context(), c.load(20, "before-"))
	require.NoError(t, err)
	c.proxy.cut(false)
	await(t, patience, "every source is listed", leader.heardAll)
	c.awaitPorts(20)
	leader.awaitSync()
}

// A replica that gets changes late removes nothing either, even if the leader changes several times
// while pods are created.
func TestLeaderHearsLate(t *testing.T) {
	c := startClustered(t, 300*time.Millisecond)
	lost := c.lost()
	const pods = 1500
	made := make(chan error, 1)
	go func() {
		_, err := c.plane.MakePods(t.Context(), c.load(pods, "web-"))
		made <- err
	}()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		elapse(time.Second)
		was, _ := c.takeOver(signal)
		was.Start()
		await(t, patience, was.name+" knows all", was.heardAll)
	}
	require.NoError(t, <-made)
	c.awaitPorts(pods)
	for _, r := range c.all {
		r.awaitSync()
	}
	require.Empty(t, lost())
}
