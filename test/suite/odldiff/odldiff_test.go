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
	stories = flag.Int("stories", 200, "number of stories, at most 250")
	steps   = flag.Int("steps", 14, "number of steps of a story; then its remaining objects are deleted")
	seed    = flag.Uint64("seed", 1, "seed of the random stories")
	only    = flag.Int("only", -1, "number of the only story to run, besides the first")
)

const (
	// followTimeout is the time in which both must process a round.
	followTimeout = 3 * time.Minute
	// reasons is the document with the reasons of the differences.
	reasons = "../../../docs/decisions/0007-where-we-differ-from-opendaylight.md"
)

// TestStoriesOnRealOpenDaylight sends the same requests to a real OpenDaylight and to the
// bridge, and compares the results after each round. A round is one step of every story. The
// bridge is restarted in the middle.
func TestStoriesOnRealOpenDaylight(t *testing.T) {
	c := odl.ForTest(t, odl.Oxygen, "host1")
	o := newOracle(t, c)
	o.begin()
	o.tell()
	for _, d := range differences {
		t.Logf("%6d × %s", o.counts[d.name], d.name)
		if *only < 0 {
			require.NotZero(t, o.counts[d.name], "the difference %q never occurs: remove it", d.name)
		}
	}
}

// TestStories sends the stories to the bridge alone, and compares its data with the stories
// after each round.
func TestStories(t *testing.T) {
	newOracle(t, nil).tell()
}

// TestReasons: the document has a reason for every difference.
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
		if n == 0 || *only < 0 || n == *only { // the first story creates the first pod
			o.stories = append(o.stories, newStory(n, *seed))
		}
	}
	return o
}

// number returns the number of stories. It is small with -short.
func number(c *odl.Controller) int {
	if c == nil && testing.Short() {
		return min(*stories, 40)
	}
	return *stories
}

// tell runs all stories to their end.
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
	o.t.Logf("%d stories ended in %s", len(o.stories), time.Since(begun).Round(time.Second))
}

func (o *oracle) step(next func(*story) (step, bool)) (more bool) {
	o.t.Helper()
	more, wrong, err := o.round(next)
	require.NoError(o.t, err)
	o.drop(wrong)
	o.follow()
	return more
}

// follow waits until OpenDaylight and the bridge have processed the requests. A story whose
// results stay different fails the test, and is dropped.
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

// begin creates and deletes one pod with its port before any other step. Without this,
// Oxygen's renderer fails to remove a pod that never had a port.
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
