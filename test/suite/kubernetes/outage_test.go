package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// outage is the time for which the API server is stopped. It is longer than all timeouts of a bridge.
const outage = 30 * time.Second

// TestOutages has a bridge with pods and services. It stops the API server, compacts the API server's
// etcd, kills the bridge, and deletes the bridge's datastore.
func TestOutages(t *testing.T) { testOutages(t, ovn.LayoutELAN) }

// TestOutagesOfLayoutNode is TestOutages with a switch for each node.
func TestOutagesOfLayoutNode(t *testing.T) { testOutages(t, ovn.LayoutNode) }

func testOutages(t *testing.T, layout ovn.Layout) {
	t.Parallel()
	w := newWorld(t, kubetest.Config{}, 20, 5)
	w.layout = layout
	load := kubetest.PodLoad{Count: 300, Namespaces: 5, Nodes: 20, Prefix: "steady-"}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	_, err = w.MakeServices(t.Context(), kubetest.ServiceLoad{Count: 30, Endpoints: 10, Namespaces: 5})
	require.NoError(t, err)
	dir := t.TempDir()
	recreateNodes(t, w, dir)
	ledger := w.rows.keepLedger(t)

	t.Run("API server killed", func(t *testing.T) { killAPIServer(t, w, ledger, dir) })
	t.Run("bridge killed", func(t *testing.T) { killBridge(t, w, ledger, dir) })
	t.Run("datastore lost", func(t *testing.T) { loseDatastore(t, w, ledger) })
}

// recreateNodes deletes some nodes and creates them again. The order of the nodes then differs
// from the order of their addresses, so their places do not follow from the addresses.
func recreateNodes(t *testing.T, w *world, dir string) {
	b := w.serve(t, withDir(dir), neverReuse)
	w.awaitExact(t, b, converge)
	before := w.agents.Places()
	w.removeNodes(t, 0, 3)
	w.awaitExact(t, b, converge)
	w.makeNodes(t, 0, 3)
	w.awaitExact(t, b, converge)
	require.NotEqual(t, before, w.agents.Places())
	b.Stop()
}

// killAPIServer kills the API server, and compacts its etcd. Meanwhile the bridge goes on, and
// is restarted. Nothing in the backend changes, and RESTCONF works. After the restart, a new pod of a
// RESTCONF client waits, because a network policy of Kubernetes may select it.
func killAPIServer(t *testing.T, w *world, ledger *ledger, dir string) {
	b := w.serve(t, withDir(dir), neverReuse)
	w.awaitExact(t, b, converge)
	before := w.lines(t)

	require.NoError(t, w.APIServer.Kill())
	require.NoError(t, w.CompactEtcd(t.Context()))
	over := time.After(outage)
	await(t, recovery, "the status says that the API server is unreachable", func() error { return b.saysUnreachable(true) })
	require.NoError(t, b.inSync(), "the bridge has written all that it knows")
	const during, restarted = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	b.putPod(t, during, "during", "ns-0", 0)
	await(t, converge, "RESTCONF works meanwhile", func() error { return w.hasPort("ns-0:during") })
	b.Restart()
	await(t, converge, "the restarted bridge reports it", func() error { return b.saysUnreachable(false) })
	require.False(t, b.status().Complete)
	b.putPod(t, restarted, "restarted", "ns-0", 0)
	await(t, converge, "the new pod waits for the policies", func() error { return b.hasProblem("restarted", "Waiting") })
	<-over
	require.NoError(t, w.hasPort("ns-0:during"))
	require.Error(t, w.hasPort("ns-0:restarted"), "a policy may forbid its packets")
	require.Subset(t, w.lines(t), before)

	require.NoError(t, w.APIServer.Start(t.Context()))
	await(t, recovery, "the pod that waited gets its port", func() error { return w.hasPort("ns-0:restarted") })
	for _, uid := range []string{during, restarted} {
		b.send(t, 200, "DELETE", podPath(uid), "")
	}
	begun := time.Now()
	more := kubetest.PodLoad{Count: 100, Namespaces: 5, Nodes: 20, Prefix: "after-"}
	_, err := w.MakePods(t.Context(), more)
	require.NoError(t, err)
	w.awaitExact(t, b, recovery)
	t.Logf("in sync %s after the API server was ready", time.Since(begun))

	// The same again, with a bridge that has an open watch.
	require.NoError(t, w.APIServer.Kill())
	require.NoError(t, w.CompactEtcd(t.Context()))
	require.NoError(t, w.APIServer.Start(t.Context()))
	_, err = w.DeletePods(t.Context(), more)
	require.NoError(t, err)
	w.awaitExact(t, b, recovery)
	ledger.require(t, w)
	b.Stop()
}

// saysUnreachable fails unless the status reports the API server as unreachable, and reports correctly
// whether its objects are known.
func (r running) saysUnreachable(known bool) error {
	for _, s := range r.status().Sources {
		if s.Name == "kubernetes" && !s.Reachable && s.Complete == known {
			return nil
		}
	}
	return fmt.Errorf("sources: %+v", r.status().Sources)
}

// lines returns the rows as lines.
func (w *world) lines(t *testing.T) []string {
	t.Helper()
	now, err := w.rows.read(t.Context())
	require.NoError(t, err)
	lines, err := now.lines()
	require.NoError(t, err)
	return lines
}

// hasPort fails unless a port exists.
func (w *world) hasPort(name string) error {
	now, err := w.rows.read(context.Background())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(now.ports, func(p nb.LogicalSwitchPort) bool { return p.Name == name }) {
		return fmt.Errorf("no port %s", name)
	}
	return nil
}
