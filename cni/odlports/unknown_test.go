package odlports

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A port that OpenDaylight does not learn of is replaced, and the next ones later and later. A programmed port is forgotten.
func TestUnknownPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unknown{waits{}}
	require.Zero(t, u.next(begun))
	require.False(t, u.see("a", false, begun), "it has just come")
	require.False(t, u.see("b", true, begun))
	require.Equal(t, 20*time.Second, u.next(at(10*time.Second)))

	require.False(t, u.see("a", false, at(knownWithin-1)))
	require.True(t, u.see("a", false, at(knownWithin)))
	require.False(t, u.see("a", false, at(3*knownWithin-1)), "the new port has twice the time")
	require.Equal(t, retryAfter, u.next(at(3*knownWithin-1)))
	now := at(3 * knownWithin)
	require.True(t, u.see("a", false, now))
	u.wait(now.Add(time.Minute), "a", "b")
	require.False(t, u.see("a", false, now.Add(time.Minute+4*knownWithin-1)), "nobody could look, and the time begins again")
	now = now.Add(time.Minute)
	require.True(t, u.see("a", false, now.Add(4*knownWithin)))
	now = now.Add(4 * knownWithin)
	for range 10 {
		now = now.Add(knownWithinMost)
		require.True(t, u.see("a", false, now), "it waits no longer")
	}
	require.False(t, u.see("a", true, now))
	require.Zero(t, u.next(now))
	require.False(t, u.see("a", false, now), "it begins again")
	require.True(t, u.see("a", false, now.Add(knownWithin)))
}

// A switch that does not answer the question for flows does not hold up the node's other work.
func TestUnknownPortsOfHungSwitch(t *testing.T) {
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := New(Config{Switch: vswitch, Programmed: func(ctx context.Context) (map[uint32]bool, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	_, err = p.Replace(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, ctx.Err(), "it has waited for the caller's deadline")
}
