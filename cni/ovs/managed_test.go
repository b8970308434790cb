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

	"github.com/stretchr/testify/assert"
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
	running.Go(func() {
		network := &told{changed: make(chan struct{})}
		n.KeepManaged(ctx, ovs.Management{Settled: func(context.Context) bool { return quiet.Load() }, Empty: n.isEmpty}, network.is)
	})
	defer running.Wait()
	defer cancel()
	n.take(members[0], openflow.Master)
	n.db("set-manager", n.manager())
	require.Eventually(t, func() bool { return n.Managed() == nil }, time.Minute, 10*time.Millisecond)
	_, err = n.PutNode(t.Context(), first)
	require.ErrorContains(t, err, "still writes flows")

	quiet.Store(true)
	require.Eventually(t, func() bool {
		changed, err := n.PutNode(t.Context(), first)
		return changed && err == nil
	}, time.Minute, 50*time.Millisecond)

	n.db("del-manager")
	require.Eventually(t, func() bool { return n.Managed() != nil }, time.Minute, 10*time.Millisecond)
	changed, err := n.PutNode(t.Context(), first)
	require.NoError(t, err)
	require.False(t, changed)
	second := ovs.NodePort{Name: "port2", Interface: "node:2", MAC: "0a:58:0a:00:00:02"}
	require.Eventually(t, func() bool {
		if _, err := n.PutNode(t.Context(), second); err != nil {
			return true
		}
		assert.NoError(t, n.DeleteNode(t.Context(), second.Name)) // KeepManaged had not looked yet
		return false
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, n.DeleteNode(t.Context(), first.Name))
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
