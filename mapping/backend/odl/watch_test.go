package odl_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const patience = 2 * time.Minute

// watch runs Watch until the test ends. It returns a channel of the calls of changed.
func watch(t *testing.T, b *odl.Backend) <-chan struct{} {
	ctx, cancel := context.WithCancel(t.Context())
	changed, done := make(chan struct{}, 1000), make(chan error, 1)
	go func() { done <- b.Watch(ctx, func() { changed <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return changed
}

func told(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(patience):
		require.Fail(t, "Watch has not called changed")
	}
}

// TestAnotherWriter: Watch notices every change, addition and deletion that an external
// writer makes to our entries, and the next Read and Write restore them.
func TestAnotherWriter(t *testing.T) {
	const container, list, key = "ietf-interfaces:interfaces", "interface", "a:pod-1"
	for name, act := range map[string]func(f *fake){
		"deleted": func(f *fake) { f.Remove(container, list, key) },
		"changed": func(f *fake) { f.Set(container, list, key, with(f.Entry(container, list, key), "enabled", false)) },
		"wiped":   func(f *fake) { f.Wipe() },
		"mark lost": func(f *fake) {
			e := f.Entry(container, list, key)
			delete(e, "description")
			f.Set(container, list, key, e)
		},
		"an elan lost its mark": func(f *fake) {
			elan := f.Keys("elan:elan-instances")[0]
			e := f.Entry("elan:elan-instances", "elan-instance", elan)
			delete(e, "description")
			f.Set("elan:elan-instances", "elan-instance", elan, e)
		},
		"more of ours": func(f *fake) {
			f.Set(container, list, "a:pod-9", map[string]any{"name": "a:pod-9", "description": "coe-bridge pod=x"})
		},
	} {
		for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Neon)} {
			t.Run(name+" on "+release.Name, func(t *testing.T) {
				t.Parallel()
				b, f := start(t, release)
				want := odltest.PodsOf("a", "b")
				write(t, b, want)
				changed := watch(t, b)
				act(f)
				told(t, changed)
				write(t, b, want)
			})
		}
	}
}

// TestAdditionsOfOthersAreNoChange: external entries may come and go without a report.
func TestAdditionsOfOthersAreNoChange(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	write(t, b, odltest.PodsOf("a"))
	changed := watch(t, b)
	for range 20 {
		place(f, ofOthers())
		addLearnt(f, "a:pod-1")
		f.Requests()
		seen := 0 // by more than one comparison
		require.Eventually(t, func() bool {
			seen += f.Requests()[http.MethodGet]
			return seen > 14
		}, patience, time.Millisecond)
	}
	require.Empty(t, changed)
}

// TestOwnWritesAreNoChange: the backend's own writes during comparisons are not reported.
func TestOwnWritesAreNoChange(t *testing.T) {
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Poll = time.Millisecond
	b := open(t, cfg)
	changed := watch(t, b)
	have := netvirt.Model{}
	for seed := range uint64(40) {
		want := small(b, seed, 6)
		require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
		have = want
	}
	require.Empty(t, changed)
	agree(t, b, have)
}

// TestRestart: the loss of a controller and its return are reported once each.
func TestRestart(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf("a")
	write(t, b, want)
	changed := watch(t, b)
	f.Load(http.StatusServiceUnavailable)
	told(t, changed)
	_, err := b.Read(t.Context())
	require.Error(t, err)
	require.Empty(t, changed)
	f.Wipe()
	f.Load(0)
	told(t, changed)
	write(t, b, want)
}

// TestFlap stops the controller right after a successful Read, while Watch still waits before
// its next check. Watch must report each loss: otherwise its caller relies on the model of a
// controller that is gone.
func TestFlap(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	write(t, b, odltest.PodsOf("a"))
	var ended atomic.Bool // since the last Read began
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { _ = b.Watch(ctx, func() { ended.Store(true) }) })
	for round := range 10 {
		f.Load(0)
		require.Eventually(t, func() bool {
			ended.Store(false)
			_, err := b.Read(t.Context())
			return err == nil && !ended.Load()
		}, patience, time.Millisecond, "round %d: it is read again", round)
		f.Load(http.StatusServiceUnavailable)
		require.Eventually(t, ended.Load, patience, time.Millisecond,
			"round %d: the watch has not reported that the controller is gone", round)
	}
}

// TestDraftComesLate: if a controller offers draft-02 after RFC 8040, the backend changes to
// draft-02.
func TestDraftComesLate(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/restconf") && answer(http.StatusNotFound, "text/html", "<html>")(w, r)
	})
	want := odltest.PodsOf("a")
	write(t, b, want)
	watch(t, b)
	drafts := make(chan struct{}, 1000)
	f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/restconf/config") {
			select {
			case drafts <- struct{}{}:
			default:
			}
		}
		return false
	})
	require.Eventually(t, func() bool {
		_, err := b.Read(t.Context())
		return err == nil && len(drafts) > 0
	}, patience, 10*time.Millisecond)
	agree(t, b, want)
}
