package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A port that OpenDaylight does not learn of is replaced, and the next ones later and later. A programmed port is forgotten.
func TestUnknownPorts(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unknown{}
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
	for range 10 {
		now = now.Add(knownWithinMost)
		require.True(t, u.see("a", false, now), "it waits no longer")
	}
	require.False(t, u.see("a", true, now))
	require.Zero(t, u.next(now))
	require.False(t, u.see("a", false, now), "it begins again")
	require.True(t, u.see("a", false, now.Add(knownWithin)))
}
