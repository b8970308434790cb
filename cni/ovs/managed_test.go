package ovs_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// manager starts OpenDaylight as the switch's database sees it: it accepts connections on the node, and sends back what it receives, so
// that probes are answered.
func (n *node) manager() (target string) {
	n.t.Helper()
	l := n.listen()
	n.t.Cleanup(serve(l, func(conn net.Conn) { _, _ = io.Copy(conn, conn) }))
	return "tcp:" + l.Addr().String()
}

// TestNodePortWaitsForFlows: a new port of the node waits until OpenDaylight programs the bridge and has stopped to write flows. A port that
// exists does not wait.
func TestNodePortWaitsForFlows(t *testing.T) {
	n, members := withMembers(t)
	first := ovs.NodePort{Name: "port1", Interface: "node:1", MAC: "0a:58:0a:00:00:01"}
	_, err := n.PutNode(t.Context(), first)
	require.ErrorIs(t, err, ovs.ErrWaits)
	require.ErrorContains(t, err, "OpenDaylight does not manage the switch")

	var quiet atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	network := &told{changed: make(chan struct{})}
	running.Go(func() {
		n.KeepManaged(ctx, ovs.Management{Settled: func(context.Context) bool { return quiet.Load() }, Empty: n.isEmpty}, network.is)
	})
	defer running.Wait()
	defer cancel()
	n.take(members[0], openflow.Master)
	n.db("set-manager", n.manager())
	require.Eventually(t, func() bool { return n.Managed() == nil }, patience.Patience, 10*time.Millisecond)
	_, err = n.PutNode(t.Context(), first)
	require.ErrorContains(t, err, "still writes flows")

	quiet.Store(true)
	require.Eventually(t, func() bool {
		changed, err := n.PutNode(t.Context(), first)
		return changed && err == nil
	}, patience.Patience, 50*time.Millisecond)

	second := ovs.NodePort{Name: "port2", Interface: "node:2", MAC: "0a:58:0a:00:00:02"}
	n.whileUnseen(network, first, second)
	n.db("set-manager", n.manager())
	require.Eventually(t, func() bool {
		changed, err := n.PutNode(t.Context(), second)
		return changed && err == nil
	}, patience.Patience, 50*time.Millisecond)
	for _, p := range []ovs.NodePort{first, second} {
		require.NoError(t, n.DeleteNode(t.Context(), p.Name))
	}
}

// whileUnseen changes the management of the switch while KeepManaged, which asks the network first, sees nothing: the first port, which
// exists, does not wait, and the second one does.
func (n *node) whileUnseen(network *told, first, second ovs.NodePort) {
	n.t.Helper()
	network.mu.Lock()
	defer network.mu.Unlock()
	require.NoError(n.t, n.host.OVSDB.Stop())
	require.Eventually(n.t, func() bool { return n.Ready() != nil }, patience.Patience, 10*time.Millisecond)
	require.NoError(n.t, n.host.OVSDB.Cont())
	require.Eventually(n.t, func() bool { return n.Managed() == nil }, patience.Patience, 10*time.Millisecond)
	_, err := n.PutNode(n.t.Context(), second)
	require.ErrorContains(n.t, err, "still writes flows")

	n.db("del-manager")
	require.Eventually(n.t, func() bool { return n.Managed() != nil }, patience.Patience, 10*time.Millisecond)
	changed, err := n.PutNode(n.t.Context(), first)
	require.NoError(n.t, err)
	require.False(n.t, changed)
	_, err = n.PutNode(n.t.Context(), second)
	require.ErrorIs(n.t, err, ovs.ErrWaits)
	require.ErrorContains(n.t, err, "OpenDaylight does not manage the switch")
}

// TestKeepsARP: the bridge is made to keep ARP packets from OpenDaylight again and again, also before OpenDaylight is connected. A failure
// does not end that.
func TestKeepsARP(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	kept := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		network := &told{changed: make(chan struct{})}
		n.KeepManaged(ctx, ovs.Management{Managers: []string{"tcp:127.0.0.1:1"}, Tunnels: n.host.Address, KeepARP: func(ctx context.Context) error {
			select {
			case kept <- struct{}{}:
			case <-ctx.Done():
			}
			return errors.New("the switch refuses it")
		}}, network.is)
	})
	defer running.Wait()
	defer cancel()
	for range 2 {
		select {
		case <-kept:
		case <-time.After(patience.Patience):
			require.Fail(t, "nothing keeps ARP packets from OpenDaylight")
		}
	}
}
