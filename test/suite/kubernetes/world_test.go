// Package kubernetes tests the Kubernetes watcher with a real API server and a real northbound
// database. After storms, faults and restarts the network must match a fresh list of the cluster.
//
// The tests compute the expected network from the API server's objects. They do not use the packages by
// which the bridge does that.
package kubernetes

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/agents"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	// converge is the time in which a bridge must be in sync, on a busy machine.
	converge = 3 * time.Minute
	// recovery is the same after a fault.
	recovery = patience.Patience
	// interval is the time between two checks.
	interval = 20 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// podPool is the pool of most tests.
var podPool = netip.MustParsePrefix("10.32.0.0/14")

// externalAddresses has the external addresses that services can have.
var externalAddresses = netip.MustParsePrefix("192.0.2.0/24")

// world has a cluster, a northbound database, bridges between the two, and agents. The agents follow
// the streams of the nodes all the time, at one bridge after the other.
type world struct {
	*kubetest.ControlPlane
	nb       *ovsdb.Server
	rows     rows
	layout   ovn.Layout // of the bridges
	agents   *agents.Streams
	network  netip.Prefix // of the nodes; zero for none
	services netip.Prefix // the IPv4 addresses of services
}

// newWorld starts a cluster with nodes and namespaces, and an empty database.
func newWorld(t *testing.T, config kubetest.Config, nodes, namespaces int) *world {
	t.Helper()
	if len(config.ServiceCIDRs) == 0 {
		config.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	}
	w := &world{
		ControlPlane: kubetest.ForTest(t, config), agents: agents.New(nodeAddresses(nodes), nil),
		network: nodeNetwork, services: config.ServiceCIDRs[0], layout: ovn.LayoutELAN,
	}
	t.Cleanup(w.agents.Stop)
	_, err := w.MakeNodes(t.Context(), nodes)
	require.NoError(t, err)
	_, err = w.MakeNamespaces(t.Context(), namespaces)
	require.NoError(t, err)
	w.newBackend(t)
	return w
}

// furtherNodes is the number of nodes that a test can create besides the first ones.
const furtherNodes = 16

// nodeAddresses returns the addresses of a world's nodes.
func nodeAddresses(nodes int) []netip.Addr {
	var all []netip.Addr
	for n := range nodes + furtherNodes {
		all = append(all, kubetest.NodeAddress(n))
	}
	return all
}

// newBackend gives the world an empty database that ends with the test.
func (w *world) newBackend(t *testing.T) {
	t.Helper()
	w.nb = ovsdb.Start(t)
	w.rows = connect(t, w.nb.Endpoint())
}

// running is a running bridge, with its status.
type running struct{ *bridgetest.Bridge }

// serve starts a bridge between the cluster, as the administrator, and the
// database, with podPool.
func (w *world) serve(t *testing.T, options ...bridgetest.Option) running {
	t.Helper()
	all := []bridgetest.Option{bridgetest.OVN(w.nb.Endpoint()), withLayout(w.layout), withPools(t, podPool.String()), w.watched(t, w.Kubeconfig())}
	b := running{bridgetest.Start(t, append(all, options...)...)}
	w.agents.At(b.URL())
	return b
}

// watched configures a bridge to watch the cluster with a kubeconfig, and to join its nodes.
func (w *world) watched(t *testing.T, kubeconfig string) bridgetest.Option {
	return func(cfg *bridge.Config) {
		api, err := kube.Connect(kubeconfig, "test", cfg.Log)
		require.NoError(t, err)
		cfg.Kubernetes = bridge.KubernetesConfig{API: api, AnnotateQPS: math.Inf(1)}
		cfg.Nodes = ranges.NodesConfig{Network: nodenet.Range{Prefix: w.network}, Services: []netip.Prefix{w.services}, External: []netip.Prefix{externalAddresses}}
	}
}

// withLayout gives a bridge a layout of OVN.
func withLayout(layout ovn.Layout) bridgetest.Option {
	return func(cfg *bridge.Config) { cfg.Backend.OVN.Layout = layout }
}

// withPools gives a bridge the pools of its settings.
func withPools(t *testing.T, texts ...string) bridgetest.Option {
	return func(cfg *bridge.Config) {
		cfg.Pools = nil
		for _, text := range texts {
			pool, err := dhcppool.Parse(text)
			require.NoError(t, err)
			cfg.Pools = append(cfg.Pools, pool)
		}
	}
}

// neverReuse configures a bridge not to give an address again during the test.
func neverReuse(cfg *bridge.Config) { cfg.ReuseDelay = time.Hour }

// status is the status of a bridge.
type status struct {
	InSync      bool   `json:"in-sync"`
	Complete    bool   `json:"complete"`
	ClaimsError string `json:"claims-error"`
	Sources     []struct {
		Name      string `json:"name"`
		Complete  bool   `json:"complete"`
		Reachable bool   `json:"reachable"`
		Resources []struct {
			Name    string `json:"name"`
			Problem string `json:"problem"`
		} `json:"resource"`
		Troubles []string `json:"trouble"`
	} `json:"source"`
	Problems []problem `json:"problem"`
}

// problem is a problem in the status.
type problem struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	UID       string `json:"uid"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

func (r running) status() (s status) {
	r.Get("operational/coe-status:status", &s)
	return s
}

// inSync returns an error if the bridge is not in sync.
func (r running) inSync() error {
	if s := r.status(); !s.InSync || !s.Complete {
		return fmt.Errorf("not in sync: %+v", s)
	}
	return nil
}

// problem returns the problem of an object in the status, or nil.
func (r running) problem(name string) *problem {
	for _, p := range r.status().Problems {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// hasProblem fails unless the status has a problem of an object with a reason.
func (r running) hasProblem(name, reason string) error {
	if p := r.problem(name); p == nil || p.Reason != reason {
		return fmt.Errorf("%s: want problem %s, the status says %+v", name, reason, p)
	}
	return nil
}

// lease is an entry of coe-status:leases.
type lease struct {
	PodUID       string       `json:"pod-uid"`
	InterfaceUID string       `json:"interface-uid"`
	Namespace    string       `json:"namespace"`
	Pod          string       `json:"pod"`
	Name         string       `json:"interface-name"`
	Node         netip.Addr   `json:"node"`
	MAC          string       `json:"mac-address"`
	Addresses    []netip.Addr `json:"ip-address"`
	Released     string       `json:"released"`
}

func (r running) leases() []lease {
	var top struct {
		Leases []lease `json:"lease"`
	}
	r.Get("operational/coe-status:leases", &top)
	return top.Leases
}

// send sends a RESTCONF request, and requires a status of the answer.
func (r running) send(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	got, answer := r.Do(method, path, body)
	require.Equal(t, want, got, "%s %s: %s", method, path, answer)
	return answer
}

// putPool posts a pool, as a RESTCONF client.
func (r running) putPool(t *testing.T, want int, network, subnet, more string) string {
	t.Helper()
	return r.send(t, want, http.MethodPut,
		"/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/"+network,
		fmt.Sprintf(`{"network":[{"network-id":%q,"allocation-pool":[{"subnet":%q%s}]}]}`, network, subnet, more))
}

// await waits until holds returns nil.
func await(t testing.TB, within time.Duration, what string, holds func() error) {
	t.Helper()
	bridgetest.Await(t, interval, within, what, holds)
}
