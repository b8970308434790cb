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
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

const patience = 10 * time.Second

// watch watches until the test is over, and tells of each call.
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
		require.Fail(t, "nothing was said to have changed")
	}
}

// TestAnotherWriter: what another hand changes, adds to, or deletes of ours is seen, and put
// back by who reads and writes then.
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
				b, f := start(t, release)
				want := podsOf("a", "b")
				write(t, b, want)
				changed := watch(t, b)
				act(f)
				told(t, changed)
				write(t, b, want)
			})
		}
	}
}

// TestAdditionsOfOthersAreNoChange: what is not ours may come and go.
func TestAdditionsOfOthersAreNoChange(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	write(t, b, podsOf("a"))
	changed := watch(t, b)
	for range 20 {
		place(f, ofOthers())
		addLearnt(f, "a:pod-1")
		f.Requests()
		seen := 0 // more than one comparison has
		require.Eventually(t, func() bool {
			seen += f.Requests()[http.MethodGet]
			return seen > 14
		}, patience, time.Millisecond)
	}
	require.Empty(t, changed)
}

// TestOwnWritesAreNoChange: while the backend compares, it is written to all the time.
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

// TestRestart: that a controller goes away is said once, and that it is back.
func TestRestart(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := podsOf("a")
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

// TestFlap makes the controller unavailable as soon as a Read has succeeded, while the watch
// still waits to look again. The watch reports each loss: otherwise its caller relies on what
// it has read from a controller that is gone.
func TestFlap(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	write(t, b, podsOf("a"))
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

// TestDraftComesLate: a controller that begins to serve draft-02 after RFC 8040 is spoken to in
// draft-02 from then on.
func TestDraftComesLate(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/restconf") && answer(http.StatusNotFound, "text/html", "<html>")(w, r)
	})
	want := podsOf("a")
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
