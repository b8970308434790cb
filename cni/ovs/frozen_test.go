package ovs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestServerThatDoesNotRead: a transaction that is larger than the buffers of the connection ends at its deadline although the server reads
// nothing. The connection is replaced.
func TestServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	n := follow(t, ovnhost.SwitchesForTest(t, "host1"), ovs.OpenDaylight)
	require.NoError(t, n.AwaitConnection(n.within()))
	require.NoError(t, n.host.OVSDB.Stop())
	t.Cleanup(func() { require.NoError(t, n.host.OVSDB.Cont()) })
	added := make(chan error, 1)
	large := vif.Port{Name: "large", Interface: strings.Repeat("x", 8<<20)}
	go func() { added <- n.Add(context.Background(), large) }()
	select {
	case err := <-added:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(patience.Patience):
		require.Fail(t, "the transaction goes on")
	}
	require.Eventually(t, func() bool { return n.Ready() != nil }, patience.Patience, 10*time.Millisecond)
	require.NoError(t, n.host.OVSDB.Cont())
	require.NoError(t, n.AwaitConnection(n.within()))
}
