package ovs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A port is replaced by one with another number. Its row and its link stay, and in between the switch does not have it, also if ctx ends then.
func TestReplace(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	number, row := n.returns(p), n.of(p, "_uuid")
	for range 2 {
		ctx, cancel := context.WithCancel(n.within())
		require.NoError(t, n.Replace(ctx, p.Name, func(ctx context.Context) {
			_, err := n.Number(ctx, p.Name)
			require.ErrorContains(t, err, p.Name)
			require.Equal(t, "-1\n", n.of(p, "ofport"))
			cancel()
		}))
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

// A port whose replacement was interrupted comes back with the next connection, with any controller.
func TestInterruptedReplacement(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	n.returns(p)
	require.NoError(t, n.Replace(n.within(), p.Name, func(context.Context) {
		follow(t, n.lab, ovs.OVN)
		require.Eventually(t, func() bool { return n.of(p, "ofport") != "-1\n" }, patience.Patience, 5*time.Millisecond)
	}))
	require.NoError(t, n.Await(n.within(), p))
}

// A port that is deleted while it is replaced stays away.
func TestReplacementOfDeletedPort(t *testing.T) {
	n := newNode(t, ovs.OpenDaylight)
	p := n.port(1)
	n.returns(p)
	require.NoError(t, n.Replace(n.within(), p.Name, func(ctx context.Context) {
		require.NoError(t, n.Delete(ctx, p.Name, p.Attachment))
	}))
	_, found, err := n.Port(n.within(), p.Name)
	require.NoError(t, err)
	require.False(t, found)
}
