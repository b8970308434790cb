package odlports

import (
	"context"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A port that OpenDaylight does not program is replaced, and the next ones later and later. A programmed port is forgotten.
func TestUnprogrammedPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	require.Zero(t, u.next(begun))
	require.False(t, u.see("a", unknown, begun), "it has just come")
	require.False(t, u.see("b", programmed, begun))
	require.Equal(t, 20*time.Second, u.next(at(10*time.Second)))

	require.False(t, u.see("a", unknown, at(programmedWithin-1)))
	require.True(t, u.see("a", unknown, at(programmedWithin)))
	require.False(t, u.see("a", unknown, at(3*programmedWithin-1)), "the new port has twice the time")
	require.Equal(t, retryAfter, u.next(at(3*programmedWithin-1)))
	require.True(t, u.see("a", unknown, at(3*programmedWithin)))
	now := at(7 * programmedWithin)
	for range 10 {
		now = now.Add(programmedWithinMost)
		require.True(t, u.see("a", unknown, now), "it waits no longer")
	}
	require.False(t, u.see("a", programmed, now))
	require.Zero(t, u.next(now))
	now = now.Add(programmedWithinMost - 1)
	require.False(t, u.see("a", unknown, now))
	require.False(t, u.see("a", unknown, now.Add(programmedWithinMost-1)), "it keeps its time: it was programmed for a short time only")
	require.True(t, u.see("a", unknown, now.Add(programmedWithinMost)))
	require.False(t, u.see("a", programmed, now))
	u.hold("a", now.Add(programmedWithinMost-1))
	now = now.Add(programmedWithinMost)
	require.False(t, u.see("a", unknown, now), "it begins again: it was programmed for long")
	require.True(t, u.see("a", unknown, now.Add(programmedWithin)))
}

// OpenDaylight has the whole time for each stage of a port. A port that goes back waits on.
func TestStagesOfPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	require.False(t, u.see("a", unknown, begun))
	require.False(t, u.see("a", tagged, at(programmedWithin)))
	require.False(t, u.see("a", unknown, at(2*programmedWithin-1)))
	require.False(t, u.see("a", tagged, at(2*programmedWithin-1)))
	require.True(t, u.see("a", tagged, at(2*programmedWithin)))
	now := at(3 * programmedWithin)
	require.False(t, u.see("a", tagged, now), "the new port has a tag")
	require.False(t, u.see("a", tagged, now.Add(2*programmedWithin-1)))
	require.True(t, u.see("a", tagged, now.Add(2*programmedWithin)))
}

// The time of a port does not begin before somebody could look at it. It is looked at again.
func TestUnseenPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	u.hold("a", begun)
	require.Equal(t, programmedWithin, u.next(begun))
	require.False(t, u.see("a", unknown, at(time.Hour)))
	u.hold("a", at(time.Hour+1))
	require.False(t, u.see("a", unknown, at(2*time.Hour)))
	require.True(t, u.see("a", unknown, at(2*time.Hour+programmedWithin)))
	u.hold("a", at(3*time.Hour))
	require.False(t, u.see("a", unknown, at(4*time.Hour)))
	require.False(t, u.see("a", unknown, at(4*time.Hour+2*programmedWithin-1)), "it keeps twice the time")
	require.True(t, u.see("a", unknown, at(4*time.Hour+2*programmedWithin)))

	u.hold("b", at(5*time.Hour))
	u.forget([]ovs.NodePort{{Name: "b"}})
	require.Len(t, u.waits, 1)
	u.forget(nil)
	require.Zero(t, u.next(at(5*time.Hour)))
}

// A new port does not help while no port at all has what a port lacks.
func TestStageOf(t *testing.T) {
	for name, c := range map[string]struct {
		known map[uint32]bool
		want  stage
	}{
		"OpenDaylight knows no port":             {nil, unseen},
		"it knows another port":                  {map[uint32]bool{8: false}, unknown},
		"it leads to another port":               {map[uint32]bool{8: true}, unknown},
		"it knows the port":                      {map[uint32]bool{7: false, 8: false}, unseen},
		"it knows the port, and leads to others": {map[uint32]bool{7: false, 8: true}, tagged},
		"it leads to the port":                   {map[uint32]bool{7: true, 8: false}, programmed},
	} {
		got, lacks := stageOf(7, c.known)
		require.Equal(t, c.want, got, name)
		require.Equal(t, got == unknown || got == tagged, lacks != "", name)
	}
}

// Without the socket of the switch the agent never sees flows, and does not look again.
func TestPortsWithoutSocket(t *testing.T) {
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Controller: ovs.OVN, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := New(Config{Switch: vswitch, Programmed: func(context.Context) (map[uint32]bool, error) { return nil, fs.ErrNotExist }})
	changed, err := p.Replace(t.Context(), []ovs.NodePort{{Name: "a"}})
	require.NoError(t, err)
	require.False(t, changed)
	require.Zero(t, p.Next())
}

// A switch that does not answer the question for flows does not hold up the node's other work.
func TestPortsOfHungSwitch(t *testing.T) {
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
