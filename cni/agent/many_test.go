package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestManyAtOnce attaches a hundred pods concurrently, and detaches them.
func TestManyAtOnce(t *testing.T) {
	const pods = 100
	w := newWorld(t, patient, "host1")
	all := make([]*sandbox, pods)
	for i := range all {
		all[i] = w.pod("host1", i, "web", fmt.Sprintf("pod%d", i))
	}
	took := w.atOnce(all, func(s *sandbox) error {
		_, err := s.add(t.Context(), invoke{})
		return err
	})
	t.Logf("ADD: %s", summary(took))
	w.awaitPods("host1", pods)
	own := w.metric("host1", "go_memstats_sys_bytes") - w.metric("host1", "go_memstats_heap_released_bytes")
	t.Logf("memory: %.0f MB of data, %.0f MB with the program", own/1e6, w.metric("host1", "process_resident_memory_bytes")/1e6)
	require.Less(t, own, 30e6)
	require.EqualValues(t, pods, w.metric("host1", "coe_agent_interfaces"))
	require.EqualValues(t, pods, w.metric("host1", `coe_agent_call_seconds_count{code="0",command="ADD"}`))
	for i := range all {
		if i%10 == 0 {
			require.NoError(t, all[i].pings(t.Context(), all[(i+1)%pods]))
		}
	}
	took = w.atOnce(all, (*sandbox).del)
	t.Logf("DEL: %s", summary(took))
	require.NoError(t, w.left("host1", w.agents["host1"].dir).is(0))
}

// TestRounds attaches and detaches a pod repeatedly, with a new sandbox each time.
func TestRounds(t *testing.T) {
	w := newWorld(t, patient, "host1")
	stays := w.pod("host1", 0, "web", "stays")
	stays.mustAdd()
	for n := range 50 {
		w.post("host1", 1, "web", "again")
		s := w.sandbox("host1", "web", "again", uid("p", 1), fmt.Sprintf("round%d", n))
		s.mustAdd()
		if n%10 == 0 {
			require.NoError(t, stays.pings(t.Context(), s))
		}
		require.NoError(t, s.del())
		s.remove()
		w.delete(1)
	}
	w.awaitPods("host1", 1)
	for _, step := range []string{"record", "replace", "links", "port", "addresses", "network", "announce", "unplug", "unlink"} {
		sum, count := w.metric("host1", `coe_agent_step_seconds_sum{step="`+step+`"}`), w.metric("host1", `coe_agent_step_seconds_count{step="`+step+`"}`)
		t.Logf("%s: %.2f ms on average", step, 1e3*sum/count)
	}
}

// metric reads a metric of a host's agent.
func (w *world) metric(host, name string) float64 {
	w.t.Helper()
	page, err := w.lab.HTTPGet(w.t.Context(), host, "http://127.0.0.1:8182/metrics")
	require.NoError(w.t, err)
	for line := range strings.Lines(page) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(w.t, err)
			return number
		}
	}
	require.Fail(w.t, "no metric "+name)
	return 0
}

// atOnce calls a function for all sandboxes concurrently, and returns the durations.
func (w *world) atOnce(all []*sandbox, do func(*sandbox) error) []time.Duration {
	w.t.Helper()
	took, errs := make([]time.Duration, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	for i, s := range all {
		running.Go(func() {
			begun := time.Now()
			errs[i] = do(s)
			took[i] = time.Since(begun)
		})
	}
	running.Wait()
	for i, err := range errs {
		require.NoError(w.t, err, all[i].name)
	}
	return took
}

func summary(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("p50 %s, p99 %s, longest %s", took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
