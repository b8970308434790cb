package ovs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A port is replaced by one with another number, and marked. Its row and its link stay, and in between the switch does not have it, also if ctx
// ends then.
func TestReplace(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	number, row := n.returns(p), n.of(p, "_uuid")
	p.Replaced = true
	for range 2 {
		ctx, cancel := context.WithCancel(n.within())
		released, err := n.Replace(ctx, p.Name, n.number(p), func(ctx context.Context) {
			_, err := n.Number(ctx, p.Name)
			require.ErrorContains(t, err, p.Name)
			require.Equal(t, "-1\n", n.of(p, "ofport"))
			cancel()
		})
		require.NoError(t, err)
		require.True(t, released)
		require.NoError(t, n.Await(n.within(), p), "the link is up")
		next := n.of(p, "ofport")
		require.NotEqual(t, number, next)
		require.Equal(t, row, n.of(p, "_uuid"))
		found, _, err := n.Port(n.within(), p.Name)
		require.NoError(t, err)
		require.Equal(t, p, found)
		number = next
	}
}

// A port whose replacement was interrupted comes back with the next connection of an agent, with any controller. Others leave it alone.
func TestInterruptedReplacement(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	n.returns(p)
	released, err := n.Replace(n.within(), p.Name, n.number(p), func(context.Context) {
		doctor := follow(t, n.lab, ovs.OpenDaylight)
		require.NoError(t, doctor.AwaitConnection(doctor.within()))
		require.Equal(t, "coe-released\n", n.of(p, "type"))
		followWith(t, n.lab, ovs.Config{Controller: ovs.OVN, GivesBack: true})
		require.Eventually(t, func() bool { return n.of(p, "ofport") != "-1\n" }, patience.Patience, 5*time.Millisecond)
	})
	require.ErrorContains(t, err, "no longer")
	require.True(t, released)
	require.NoError(t, n.Await(n.within(), p))
}

// A server that is restarted during a replacement gets the port back at its end, with another number.
func TestReplacementWithOtherConnection(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	number := n.returns(p)
	agent := followWith(t, n.lab, ovs.Config{Controller: ovs.OpenDaylight, GivesBack: true})
	_, err := agent.Replace(n.within(), p.Name, n.number(p), func(ctx context.Context) {
		require.NoError(t, n.host.OVSDB.Kill())
		require.Eventually(t, func() bool { return agent.Ready() != nil }, patience.Patience, time.Millisecond)
		require.NoError(t, n.host.OVSDB.Start(t.Context()))
		require.NoError(t, agent.AwaitConnection(ctx))
		require.Equal(t, "coe-released\n", n.of(p, "type"))
	})
	require.NoError(t, err)
	require.NoError(t, n.Await(n.within(), p))
	require.NotEqual(t, number, n.of(p, "ofport"))
}

// A port that is still released after its replacement, for example because the server did not answer, comes back although the connection
// of the agent lasts.
func TestReleasedPortComesBack(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	n.returns(p)
	agent := followWith(t, n.lab, ovs.Config{Controller: ovs.OpenDaylight, GivesBack: true})
	require.NoError(t, agent.AwaitConnection(n.within()))
	_, err := n.host.VSCtl(t.Context(), "set", "Interface", p.Name, "type=coe-released")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return n.of(p, "type") == "\"\"\n" }, patience.Patience, 5*time.Millisecond)
	require.NoError(t, n.Await(n.within(), p))
}

// A port whose replacement fails after the switch has released it was released.
func TestReplacementWithoutSwitch(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	number := n.returns(p)
	former := n.number(p)
	require.NoError(t, n.host.VSwitchd.Kill())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	released := false
	go func() {
		var err error
		released, err = n.Replace(ctx, p.Name, former, func(context.Context) { t.Error("the switch has not released the port") })
		ended <- err
	}()
	require.Eventually(t, func() bool { return n.of(p, "type") == "coe-released\n" }, patience.Patience, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.True(t, released)
	require.Equal(t, "\"\"\n", n.of(p, "type"))
	require.NoError(t, n.host.VSwitchd.Start(t.Context()))
	require.NoError(t, n.Await(n.within(), p))
	require.NotEqual(t, number, n.of(p, "ofport"))
}

// A port that is deleted while it is replaced stays away. OpenDaylight learns that it is gone, so the next one has another number.
func TestReplacementOfDeletedPort(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	number := n.returns(p)
	released, err := n.Replace(n.within(), p.Name, n.number(p), func(ctx context.Context) {
		require.NoError(t, n.Delete(ctx, p.Name, p.Attachment))
	})
	require.ErrorContains(t, err, "no longer")
	require.True(t, released)
	_, found, err := n.Port(n.within(), p.Name)
	require.NoError(t, err)
	require.False(t, found)
	require.NotEqual(t, number, n.returns(p))
}

// The fresh port of another sandbox has the name of the former one, and is not replaced instead.
func TestReplacementOfFormerPort(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	n.returns(p)
	former := n.number(p)
	require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
	p.Attachment.Container += "again"
	number := n.returns(p)
	released, err := n.Replace(n.within(), p.Name, former, func(context.Context) { t.Error("the fresh port is released") })
	require.ErrorContains(t, err, "another one")
	require.False(t, released)
	require.Equal(t, number, n.of(p, "ofport"))
	require.Equal(t, "\"\"\n", n.of(p, "type"))
}

// A port that has come back with its former number after a reboot is replaced by one with another number.
func TestReplacementAfterReboot(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	former := n.returns(p)
	require.NoError(t, n.host.VSwitchd.Kill())
	n.unlink(p)
	require.NoError(t, n.host.VSwitchd.Start(t.Context()))
	require.Eventually(t, func() bool { return n.of(p, "ofport") == "-1\n" }, patience.Patience, 5*time.Millisecond)
	require.NoError(t, n.Delete(n.within(), p.Name, p.Attachment))
	p.Attachment.Container += "again"
	n.link(p)
	require.Equal(t, former, n.returns(p))
	_, err := n.Replace(n.within(), p.Name, n.number(p), func(context.Context) {})
	require.NoError(t, err)
	require.NoError(t, n.Await(n.within(), p))
	require.NotEqual(t, former, n.of(p, "ofport"))
}

// number returns the OpenFlow number of a port.
func (n *node) number(p vif.Port) uint32 {
	n.t.Helper()
	number, err := n.Number(n.within(), p.Name)
	require.NoError(n.t, err)
	return number
}
