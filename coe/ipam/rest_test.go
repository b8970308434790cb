package ipam_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// setClock sets the clock. The monotonic time does not change.
func (w *world) setClock(by time.Duration) {
	w.now = w.now.Add(by)
	w.skew += by
}

// TestRestWhateverTheClockSays: an address rests for the full delay, and not longer, even if the
// clock is set, or a leader with another clock takes over.
func TestRestWhateverTheClockSays(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour, "not": 0} {
		for when, takeover := range map[string]bool{"set": false, "of the next leader": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				// One address for pods, one for services.
				w := newWorld(t, pool("default", "10.0.0.0/29", "10.0.0.2", "10.0.0.2", ""), pool("services", "10.96.0.0/30", "10.96.0.2", "10.96.0.2", ""))
				a, b, moves := newPod("a", n1), newPod("b", n1), newPod("m", n1, wanting("172.16.0.1"))
				service := func(uid string, there bool) {
					w.store.Update(func(tx *state.Tx) {
						if there {
							tx.PutService(coe.RESTCONF, &coe.Service{UID: uid, Namespace: "default"})
						} else {
							tx.DeleteService(coe.RESTCONF, uid)
						}
					})
				}
				w.put(a, moves)
				service("s1", true)
				w.sync()
				w.remove(a)
				moved := newPod("m", n1, wanting("172.16.0.2"))
				w.put(moved)
				service("s1", false)
				w.sync()
				c := newPod("c", n1, wanting("172.16.0.1"))
				put := func() {
					w.put(b, c, moved)
					service("s2", true)
				}
				put()
				w.sync()

				w.wait(20 * time.Second)
				w.setClock(by)
				left := 10 * time.Second
				if takeover {
					w.restart()
					put()
					w.complete()
					w.sync()
					left = 30 * time.Second // since the leader took over
				}
				w.wait(left - time.Second)
				require.Equal(t, coe.PoolExhausted, w.refusal(b).Reason)
				require.Equal(t, coe.AddressTaken, w.refusal(c).Reason)
				require.Equal(t, coe.PoolExhausted, w.store.View("default").ServiceRefusals["s2"].Reason)
				require.LessOrEqual(t, w.again, time.Second)
				w.wait(time.Second)
				require.Equal(t, "10.0.0.2", w.address(b))
				require.Equal(t, "172.16.0.1", w.address(c))
				require.Equal(t, "10.96.0.2", w.store.View("default").ServiceFacts["s2"].Address.String())
			})
		}
	}
}

// TestRestGoesOnWhenTheJournalIsLoadedAgain: after a failed commit, the rests of addresses that
// this leader has released go on. They do not start again.
func TestRestGoesOnWhenTheJournalIsLoadedAgain(t *testing.T) {
	w := newWorld(t, pool("default", "10.0.0.0/29", "10.0.0.2", "10.0.0.2", ""))
	a, b := newPod("a", n1), newPod("b", n1)
	w.put(a)
	w.sync()
	w.remove(a)
	w.put(b)
	w.sync()
	w.wait(20 * time.Second)
	w.put(newPod("c", n1, wanting("172.16.0.1")))
	w.journal.failIn = 1
	require.ErrorIs(t, w.trySync(), errJournal)
	w.sync()
	w.wait(10 * time.Second)
	require.Equal(t, "10.0.0.2", w.address(b))
}
