package egress

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The address moves only when no packet comes in at the former node any more, for a time that is bounded. An agent that does not
// count, or that does not run on a node that was deleted, makes the bridge wait for the fixed time.
func TestMoveWaitsForPackets(t *testing.T) {
	moving := func(t *testing.T) *world {
		w := newWorld(t)
		w.happens(settle+time.Second, byNobody, byA)
		w.busy[nodeA] = true
		w.nodes[nodeA].Cordoned = true
		return w
	}
	former := func(w *world) netip.Addr { return w.set.EgressIPs[0].Hosts[2-w.set.EgressIPs[0].Active] }
	t.Run("they end", func(t *testing.T) {
		w := moving(t)
		w.happens(settleBy/2, byA, fromAToB)
		w.busy[nodeA] = false
		w.happens(settle-2*interval, fromAToB)
		w.happens(2*interval, fromAToB, byB)
		require.Equal(t, nodeA, former(w))
		w.happens(linger-settle-2*interval, byB)
		require.Equal(t, nodeA, former(w), "its port stays for a time after the move")
		w.happens(2*interval, byB)
		require.False(t, former(w).IsValid())
	})
	t.Run("they end, and begin again", func(t *testing.T) {
		w := moving(t)
		w.happens(settleBy/2, byA, fromAToB)
		w.busy[nodeA] = false
		w.happens(settle-2*interval, fromAToB)
		w.busy[nodeA] = true
		w.happens(interval, fromAToB)
		w.busy[nodeA] = false
		w.happens(settle-2*interval, fromAToB)
		w.happens(2*interval, fromAToB, byB)
	})
	t.Run("they never end", func(t *testing.T) {
		w := moving(t)
		w.happens(settleBy, byA, fromAToB)
		w.happens(settle, fromAToB, byB)
	})
	t.Run("the agent does not count", func(t *testing.T) {
		w := moving(t)
		w.countless[nodeA] = true
		w.happens(settle+time.Second, byA, fromAToB, byB)
	})
	t.Run("the agent has not answered yet", func(t *testing.T) {
		w := moving(t)
		w.busy[nodeA], w.mute[nodeA] = false, true
		w.happens(settleBy/2, byA, fromAToB)
		w.mute[nodeA] = false
		w.happens(settle+interval, fromAToB, byB)
	})
	t.Run("the node was deleted, and its agent is silent", func(t *testing.T) {
		w := moving(t)
		w.happens(settleBy/2, byA, fromAToB)
		delete(w.nodes, nodeA)
		w.deaf[nodeA] = true
		w.happens(deadAfter+interval, "by node-1, owned by nobody", byB)
	})
	t.Run("the node dies", func(t *testing.T) {
		w := moving(t)
		w.happens(settleBy/2, byA, fromAToB)
		w.silent[nodeA] = true
		w.happens(deadAfter+interval, fromAToB, byB)
	})
}

// A count is proven to have been the same from the first answer with it until the last question that had it as its answer.
func TestCounts(t *testing.T) {
	p, begun := &peer{}, time.Now()
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	answer := func(asked, answered int, packets uint64) {
		p.answered = at(answered)
		p.received = p.counts(at(asked), at(answered), map[string]uint64{"port": packets})
	}
	quiet := func(seconds int) bool { return p.quiet(p.answered, "port", time.Duration(seconds)*time.Second) }
	answer(0, 1, 7)
	require.True(t, quiet(0))
	require.False(t, quiet(1))
	answer(2, 4, 7)
	require.True(t, quiet(1))
	require.False(t, quiet(2))
	answer(5, 9, 8)
	require.False(t, quiet(1))
	answer(10, 11, 8)
	require.True(t, quiet(1))
	answer(12, 13, 3) // another link
	require.False(t, quiet(1))
}
