package ovs_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A node is rebooted: the switch starts without the links of its ports. The ports return in another order with their former numbers, by which
// OpenDaylight still knows them. A port that the switch has had until its removal returns with another number.
func TestNumbersAfterReboot(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	ports := []vif.Port{n.port(1), n.port(2), n.port(3)}
	former := map[string]string{}
	for _, p := range ports {
		former[p.Name] = n.returns(p)
	}
	require.NoError(t, n.host.VSwitchd.Kill())
	for _, p := range ports {
		n.unlink(p)
	}
	require.NoError(t, n.host.VSwitchd.Start(t.Context()))
	for _, p := range ports {
		require.Eventually(t, func() bool { return n.of(p, "ofport") == "-1\n" }, patience.Patience, 5*time.Millisecond)
		require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
	}
	for _, p := range slices.Backward(ports) {
		p.Attachment.Container += "again"
		n.link(p)
		require.Equal(t, former[p.Name], n.returns(p))

		require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
		n.unlink(p)
		require.NoError(t, n.AwaitDeletions(n.within()))
		p.Attachment.Container += "again"
		n.link(p)
		require.NotEqual(t, former[p.Name], n.returns(p))
	}
}

// An ADD ends before the switch has opened the port, and is repeated. OpenDaylight possibly knows the port from before a reboot.
func TestNumberOfPortThatIsNotOpened(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	require.NoError(t, n.host.VSwitchd.Kill())
	require.NoError(t, n.Add(n.within(), p))
	number := n.of(p, "ofport_request")
	require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
	require.NoError(t, n.Add(n.within(), p))
	require.Equal(t, number, n.of(p, "ofport_request"))
}

// returns adds a port, and returns its OpenFlow number.
func (n *node) returns(p vif.Port) string {
	n.t.Helper()
	require.NoError(n.t, n.Add(n.within(), p))
	require.NoError(n.t, n.Await(n.within(), p))
	return n.of(p, "ofport")
}
