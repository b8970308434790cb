package odlports

import (
	"context"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A port that OpenDaylight does not program is replaced, and the next ones later and later.
func TestUnprogrammedPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	replaced := func(at openflow.Stage, now time.Time) bool {
		replace := u.see("a", at, now)
		if replace {
			u.count("a")
		}
		return replace
	}
	require.False(t, replaced(openflow.Unknown, begun), "it has just come")
	require.False(t, replaced(openflow.Unknown, at(programmedWithin-1)))
	require.True(t, replaced(openflow.Unknown, at(programmedWithin)))
	require.False(t, replaced(openflow.Unknown, at(3*programmedWithin-1)), "the new port has twice the time")
	require.True(t, replaced(openflow.Unknown, at(3*programmedWithin)))
	now := at(7 * programmedWithin)
	for range 10 {
		now = now.Add(programmedWithinMost)
		require.True(t, replaced(openflow.Unknown, now), "it waits no longer")
	}
	require.False(t, replaced(openflow.Complete, now))
	now = now.Add(programmedWithinMost - 1)
	require.False(t, replaced(openflow.Unknown, now))
	require.False(t, replaced(openflow.Unknown, now.Add(programmedWithinMost-1)), "it keeps its time: it was programmed for a short time only")
	require.True(t, replaced(openflow.Unknown, now.Add(programmedWithinMost)))
	require.False(t, replaced(openflow.Complete, now))
	u.hold("a", now.Add(programmedWithinMost-1))
	now = now.Add(programmedWithinMost)
	require.False(t, replaced(openflow.Unknown, now), "it begins again: it was programmed for long")
	require.True(t, replaced(openflow.Unknown, now.Add(programmedWithin)))
}

// A replacement that failed does not count, and is tried again after the same time.
func TestFailedReplacement(t *testing.T) {
	u, now := unprogrammed{waits{}}, time.Now()
	require.False(t, u.see("a", openflow.Tagged, now))
	for range replacedMost + 1 {
		now = now.Add(programmedWithin)
		require.True(t, u.see("a", openflow.Tagged, now))
		require.False(t, u.see("a", openflow.Tagged, now), "the stage of the port begins again")
		require.Zero(t, u.waits["a"].replaced)
	}
}

// While a port lacks something or cannot be looked at, all are looked at soon again. Else they are looked at from time to time.
func TestLooks(t *testing.T) {
	u, now := unprogrammed{waits{}}, time.Now()
	require.Zero(t, u.next(), "there are no ports")
	require.False(t, u.see("a", openflow.Complete, now))
	require.False(t, u.see("b", openflow.Complete, now))
	require.Equal(t, quietEvery, u.next())
	require.False(t, u.see("b", openflow.Led, now))
	require.Equal(t, lookEvery, u.next())
	require.False(t, u.see("b", openflow.Complete, now))
	require.Equal(t, quietEvery, u.next())
	u.hold("c", now)
	require.Equal(t, lookEvery, u.next())
	u.forget([]Port{{Name: "a"}, {Name: "b"}})
	require.Empty(t, u.waits)
	require.Zero(t, u.next())
}

// The port of a pod is replaced four times without effect, and the log says once that it is not replaced again. A port of the node is replaced on and on.
func TestSpentPorts(t *testing.T) {
	now := time.Now()
	for container, wanted := range map[string][][2]bool{
		"sandbox": {{}, {}, {}, {}, {true, true}, {true, false}, {true, false}},
		"":        {{}, {}, {}, {}, {}, {}, {}},
	} {
		u, port := unprogrammed{waits{}}, Port{Name: "a", Container: container}
		for i, w := range wanted {
			require.False(t, u.see(port.key(), openflow.Led, now))
			now = now.Add(programmedWithinMost)
			require.True(t, u.see(port.key(), openflow.Led, now))
			spent, first := u.spent(port)
			require.Equal(t, w, [2]bool{spent, first}, i)
			if !spent {
				u.count(port.key())
			}
		}
	}
}

// OpenDaylight has the whole time for each stage of a port. A port that goes back waits on.
func TestStagesOfPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	require.False(t, u.see("a", openflow.Unknown, begun))
	require.False(t, u.see("a", openflow.Tagged, at(programmedWithin)))
	require.False(t, u.see("a", openflow.Unknown, at(2*programmedWithin-1)))
	require.False(t, u.see("a", openflow.Tagged, at(2*programmedWithin-1)))
	require.True(t, u.see("a", openflow.Tagged, at(2*programmedWithin)))
	u.count("a")
	now := at(3 * programmedWithin)
	require.False(t, u.see("a", openflow.Tagged, now), "the new port has a tag")
	require.False(t, u.see("a", openflow.Tagged, now.Add(2*programmedWithin-1)))
	require.True(t, u.see("a", openflow.Tagged, now.Add(2*programmedWithin)))
}

// The time of a port does not begin before somebody could look at it. It is looked at again.
func TestUnseenPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unprogrammed{waits{}}
	u.hold("a", begun)
	require.False(t, u.see("a", openflow.Unknown, at(time.Hour)))
	u.hold("a", at(time.Hour+1))
	require.False(t, u.see("a", openflow.Unknown, at(2*time.Hour)))
	require.True(t, u.see("a", openflow.Unknown, at(2*time.Hour+programmedWithin)))
	u.count("a")
	u.hold("a", at(3*time.Hour))
	require.False(t, u.see("a", openflow.Unknown, at(4*time.Hour)))
	require.False(t, u.see("a", openflow.Unknown, at(4*time.Hour+2*programmedWithin-1)), "it keeps twice the time")
	require.True(t, u.see("a", openflow.Unknown, at(4*time.Hour+2*programmedWithin)))

	u.hold(Port{Name: "b"}.key(), at(5*time.Hour))
	u.forget([]Port{{Name: "b"}})
	require.Len(t, u.waits, 1)
}

// A new port does not help while no port at all has what a port lacks. ADDs look at what else a pod lacks than packets from tunnels, until its
// port is replaced: nobody awaits the new one.
func TestStageOf(t *testing.T) {
	type stages = map[uint32]openflow.Stage
	for name, c := range map[string]struct {
		known      stages
		node, pods openflow.Stage
	}{
		"OpenDaylight knows no port":             {nil, unseen, unseen},
		"it knows another port":                  {stages{8: openflow.Tagged}, openflow.Unknown, unseen},
		"it leads to another port":               {stages{8: openflow.Complete}, openflow.Unknown, unseen},
		"it knows the port":                      {stages{7: openflow.Tagged, 8: openflow.Tagged}, unseen, unseen},
		"it knows the port, and leads to others": {stages{7: openflow.Tagged, 8: openflow.Led}, openflow.Tagged, unseen},
		"tunnels do not lead to any port":        {stages{7: openflow.Led, 8: openflow.Led}, unseen, unseen},
		"no other port needs tunnels":            {stages{7: openflow.Led, 8: openflow.Complete}, unseen, unseen},
		"tunnels lead to others only":            {stages{7: openflow.Led, 8: openflow.Reached}, openflow.Led, openflow.Led},
		"the port has everything":                {stages{7: openflow.Complete, 8: openflow.Led}, openflow.Complete, openflow.Complete},
		"tunnels lead to it":                     {stages{7: openflow.Reached, 8: openflow.Led}, openflow.Complete, openflow.Complete},
	} {
		require.Equal(t, c.node, stageOf(Port{}, 7, c.known), name)
		require.Equal(t, c.pods, stageOf(Port{Container: "sandbox"}, 7, c.known), name)
		require.Equal(t, c.node, stageOf(Port{Container: "sandbox", Replaced: true}, 7, c.known), name)
	}
	for at := openflow.Unknown; at < openflow.Complete; at++ {
		require.NotEmpty(t, lacking[at])
	}
}

// The replacements of a port count until it has been programmed for long.
func TestReplacementsAreCounted(t *testing.T) {
	u, now := unprogrammed{waits{}}, time.Now()
	later := func(d time.Duration) time.Time {
		now = now.Add(d)
		return now
	}
	require.False(t, u.see("a", openflow.Led, now))
	for i := range 3 {
		require.True(t, u.see("a", openflow.Led, later(programmedWithinMost)))
		u.count("a")
		require.Equal(t, i+1, u.waits["a"].replaced)
		u.hold("a", now)
		require.False(t, u.see("a", openflow.Tagged, now))
		require.False(t, u.see("a", openflow.Complete, now))
		require.False(t, u.see("a", openflow.Led, now))
		require.Equal(t, i+1, u.waits["a"].replaced)
	}
	require.False(t, u.see("a", openflow.Complete, now))
	require.False(t, u.see("a", openflow.Led, later(programmedWithinMost)))
	require.Zero(t, u.waits["a"].replaced)
}

// A port of another sandbox begins again, and the port of a sandbox that is gone is forgotten.
func TestPortsOfSandboxes(t *testing.T) {
	begun := time.Now()
	u := unprogrammed{waits{}}
	one, other := Port{Name: "a", Container: "one"}, Port{Name: "a", Container: "other"}
	require.False(t, u.see(one.key(), openflow.Led, begun))
	require.False(t, u.see(other.key(), openflow.Led, begun.Add(programmedWithin)))
	u.forget([]Port{other})
	require.Len(t, u.waits, 1)
	require.True(t, u.see(other.key(), openflow.Led, begun.Add(2*programmedWithin)))
}

// Without the socket of the switch the agent never sees flows, and does not look again.
func TestPortsWithoutSocket(t *testing.T) {
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Controller: ovs.OVN, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := New(Config{Switch: vswitch, Programmed: func(context.Context, openflow.Addresses) (map[uint32]openflow.Stage, error) {
		return nil, fs.ErrNotExist
	}})
	changed, err := p.Replace(t.Context(), []Port{{Name: "a"}})
	require.NoError(t, err)
	require.False(t, changed)
	require.Zero(t, p.Next())
}

// A switch that does not answer the question for flows does not hold up the node's other work.
func TestPortsOfHungSwitch(t *testing.T) {
	vswitch, err := ovs.New(ovs.Config{Endpoint: "unix:" + t.TempDir() + "/none", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := New(Config{Switch: vswitch, Programmed: func(ctx context.Context, _ openflow.Addresses) (map[uint32]openflow.Stage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	_, err = p.Replace(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, ctx.Err(), "it has waited for the caller's deadline")
}
