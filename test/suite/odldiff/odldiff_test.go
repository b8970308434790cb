package odldiff

import (
	"flag"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

var (
	stories = flag.Int("stories", 200, "how many stories are told, 250 at most")
	steps   = flag.Int("steps", 14, "how many things happen in a story, before all that is left goes")
	seed    = flag.Uint64("seed", 1, "what the stories are made of")
	only    = flag.Int("only", -1, "the number of one story that is told with the first, without the others")
)

const (
	// followTimeout bounds how long both may take to follow a round.
	followTimeout = 3 * time.Minute
	// reason is where the differences are written down.
	reasons = "../../../docs/decisions/0007-where-we-differ-from-opendaylight.md"
)

// TestStoriesOnRealOpenDaylight tells both the same, and compares what becomes of it after each round, in
// which one thing happens in every story. The bridge is started again on the way.
func TestStoriesOnRealOpenDaylight(t *testing.T) {
	c := odl.ForTest(t, odl.Oxygen, "host1")
	o := newOracle(t, c)
	o.begin()
	o.tell()
	for _, d := range differences {
		t.Logf("%6d × %s", o.counts[d.name], d.name)
		if *only < 0 {
			require.NotZero(t, o.counts[d.name], "the difference %q never occurs, take it out", d.name)
		}
	}
}

// TestStories tells them to the bridge alone: it has what the stories say at any time.
func TestStories(t *testing.T) {
	newOracle(t, nil).tell()
}

// TestReasons: every difference is written down with its reason.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile(reasons)
	require.NoError(t, err)
	for _, d := range differences {
		require.Contains(t, string(text), "\n| "+d.name+" |")
	}
}

func newOracle(t *testing.T, c *odl.Controller) *oracle {
	o := &oracle{t: t, oxygen: c, bridge: bridgetest.Start(t), counts: map[string]int{}}
	for n := range number(c) {
		if n == 0 || *only < 0 || n == *only { // the first one begins
			o.stories = append(o.stories, newStory(n, *seed))
		}
	}
	return o
}

// number is how many stories are told: few where that has to be quick.
func number(c *odl.Controller) int {
	if c == nil && testing.Short() {
		return min(*stories, 40)
	}
	return *stories
}

// tell tells all stories to their end.
func (o *oracle) tell() {
	begun := time.Now()
	for n := range *steps {
		o.step(func(s *story) (step, bool) { return s.next(), true })
		if n == *steps/2 {
			o.bridge.Restart()
			o.follow()
		}
	}
	for o.step((*story).end) {
	}
	o.t.Logf("%d stories told to their end in %s", len(o.stories), time.Since(begun).Round(time.Second))
}

func (o *oracle) step(next func(*story) (step, bool)) (more bool) {
	o.t.Helper()
	more, wrong, err := o.round(next)
	require.NoError(o.t, err)
	o.drop(wrong)
	o.follow()
	return more
}

// follow waits until both have followed what was told. Stories with which something stays wrong
// are told no further.
func (o *oracle) follow() {
	o.t.Helper()
	deadline := time.Now().Add(followTimeout)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong, err := o.compare()
		require.NoError(o.t, err)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			o.drop(wrong)
			return
		}
		<-tick.C
	}
}

func (o *oracle) drop(wrong map[*story]error) {
	o.stories = slices.DeleteFunc(o.stories, func(s *story) bool { return wrong[s] != nil })
	for _, err := range wrong {
		o.t.Error(err)
	}
}

// begin has one pod come with its port, and go, before all else: until then, Oxygen's renderer
// fails to remove a pod whose port never came.
func (o *oracle) begin() {
	first := o.stories[0]
	p := first.newPod()
	p.node = first.nodes[0]
	p.address = first.podAddress(p, p.node)
	for _, st := range []func() step{
		func() step { return first.put(p, http.MethodPut, "the first pod is put") },
		func() step { return first.plug(p) },
		func() step { return first.unplug(p) },
		func() step { return first.remove(p) },
	} {
		o.step(func(s *story) (step, bool) {
			if s != first {
				return step{}, false
			}
			return s.told(st()), true
		})
	}
}
