package follow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// translates shows northd a new port that takes a time to be translated.
func (n *northd) translates(uuid string, took time.Duration) {
	n.see(uuid, false, false)
	pass(took)
	n.see(uuid, true, false)
}

// TestRestsOfNorthd: a rest follows the shorter one of the last two times.
func TestRestsOfNorthd(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		took []time.Duration
		rest time.Duration
	}{
		{"nothing is known", nil, 0},
		{"one port", []time.Duration{100 * ms}, 0},
		{"two ports", []time.Duration{100 * ms, 120 * ms}, waitFactor * 100 * ms},
		{"quick", []time.Duration{49 * ms, 49 * ms}, 0},
		{"one is late", []time.Duration{5 * ms, 400 * ms}, 0},
		{"quick again", []time.Duration{100 * ms, 100 * ms, 5 * ms}, 0},
		{"slow", []time.Duration{900 * ms, 900 * ms}, maxWait},
		{"too slow", []time.Duration{1100 * ms, 1100 * ms}, 0},
		{"once too slow", []time.Duration{100 * ms, 100 * ms, 1100 * ms, 100 * ms}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n northd
				for _, took := range c.took {
					n.translates("port", took)
					require.Equal(t, took, n.last())
				}
				require.Equal(t, c.rest, n.rest())
			})
		})
	}
}

// TestNorthdStandsStill: nothing waits for an ovn-northd that does not answer, until it has answered twice.
func TestNorthdStandsStill(t *testing.T) {
	const took = 100 * time.Millisecond
	for name, c := range map[string]struct {
		happens func(*northd)
		rest    time.Duration
	}{
		"a port is not translated in time":     {func(n *northd) { n.see("a", false, false); pass(maxWait + 1) }, 0},
		"and another one comes":                {func(n *northd) { n.see("a", false, false); pass(maxWait + 1); n.see("b", false, false) }, 0},
		"it is translated at last":             {func(n *northd) { n.see("a", false, false); pass(time.Minute); n.see("a", true, false) }, 0},
		"a port of before is translated":       {func(n *northd) { n.see("a", false, false); pass(maxWait + 1); n.see("b", true, false) }, 0},
		"ports that come meanwhile":            {func(n *northd) { n.see("a", false, false); pass(took); n.see("b", false, false) }, waitFactor * took},
		"a port is gone before":                {func(n *northd) { n.see("a", false, false); n.see("a", false, true); pass(time.Minute) }, waitFactor * took},
		"an old port changes, and one is gone": {func(n *northd) { n.see("a", true, false); n.see("b", true, true); pass(time.Minute) }, waitFactor * took},
		"the database does not answer":         {(*northd).forget, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n northd
				n.translates("former", took)
				n.translates("other", took)
				require.Equal(t, waitFactor*took, n.rest())
				c.happens(&n)
				require.Equal(t, c.rest, n.rest())
				if n.port != "" {
					pass(time.Hour)
					require.GreaterOrEqual(t, n.last(), time.Hour)
				}
				for range 2 {
					n.see(n.port, false, true)
					n.translates("later", took)
				}
				require.Equal(t, waitFactor*took, n.rest())
			})
		})
	}
}
