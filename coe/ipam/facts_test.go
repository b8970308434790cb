package ipam_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// FuzzFacts runs a random story on an Assigner. The Facts of another process follow its
// journal: usually by changes, sometimes by a snapshot. After each step the store of the
// other process has the same contents as the store of an Assigner that loads the journal.
// It may also have networks and blocks that nothing uses: nothing is mapped from these.
func FuzzFacts(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	f.Add([]byte("pods come and go and move, commits fail, and the bridge restarts"))
	f.Add([]byte("PODS COME AND GO AND MOVE, COMMITS FAIL, AND THE BRIDGE RESTARTS!"))
	f.Add([]byte("services and pods of two sources; a follower that lags behind gets a snapshot"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 200 {
			steps = steps[:200]
		}
		s := newStory(t, len(steps)%2 == 1)
		o := newFollower(s.world)
		for i := 0; i+1 < len(steps); i += 2 {
			s.step(steps[i], steps[i+1])
			o.follow(i == 0 || steps[i+1]%5 == 0)
			o.requireFacts()
		}
	})
}

// follower is another process, which follows the journal of a world.
type follower struct {
	*world
	store    *state.Store
	facts    *journal.Facts
	followed map[string][]byte
}

func newFollower(w *world) *follower {
	store := state.NewStore(nil, coe.RESTCONF)
	return &follower{world: w, store: store, facts: journal.NewFacts(store)}
}

// follow reads the changes since the last call, or a snapshot of all records.
func (o *follower) follow(snapshot bool) {
	now, err := o.journal.Load(o.Context())
	require.NoError(o, err)
	puts, deletes := maps.Clone(now), []string(nil)
	if !snapshot {
		maps.DeleteFunc(puts, func(key string, value []byte) bool { return bytes.Equal(o.followed[key], value) })
		for key := range o.followed {
			if _, found := now[key]; !found {
				deletes = append(deletes, key)
			}
		}
	}
	require.NoError(o, o.facts.Apply(snapshot, puts, deletes))
	o.followed = now
}

// requireFacts requires that the store has the same contents as the store of an Assigner
// that loads the journal.
func (o *follower) requireFacts() {
	loaded := state.NewStore(nil, coe.RESTCONF)
	other := &world{TB: o.TB, journal: o.journal, isolated: o.isolated, now: o.now, vnis: o.vnis, store: loaded}
	require.NoError(o, other.newAssigner().Load(o.Context()))
	for _, ns := range append(loaded.Namespaces(), o.store.Namespaces()...) {
		want, got := loaded.View(ns), o.store.View(ns)
		used := map[string]bool{}
		for _, l := range got.Leases {
			used[netvirt.ELANName(l.Node, ns)] = true
		}
		require.True(o, slices.EqualFunc(want.Leases, got.Leases, same), "want %v, got %v", want.Leases, got.Leases)
		require.True(o, maps.EqualFunc(want.ServiceFacts, got.ServiceFacts, same), "want %v, got %v", want.ServiceFacts, got.ServiceFacts)
		require.Empty(o, got.Refusals)
		if len(used) > 0 || want.VPN != nil {
			require.Equal(o, want.VPN, got.VPN)
		}
		for name, e := range got.ELANs {
			if used[name] || want.ELANs[name] != nil {
				require.Equal(o, want.ELANs[name], e)
			}
		}
		require.Subset(o, got.ELANs, want.ELANs)
		require.Subset(o, got.Blocks, want.Blocks)
		for _, b := range got.Blocks {
			if used[b.ELAN] {
				require.Contains(o, want.Blocks, b)
			}
		}
	}
}

func same[T any](a, b *T) bool { return reflect.DeepEqual(a, b) }

// TestDeposedAssigner: a process that no longer leads forgets the leases that the new leader
// has removed, and its own refusals.
func TestDeposedAssigner(t *testing.T) {
	w := newWorld(t, pool("default", "10.11.0.0/29", "10.11.0.2", "10.11.0.4", "10.11.0.1"))
	var pods []*coe.Pod
	for i := range 8 {
		pods = append(pods, newPod(fmt.Sprint("pod", i), "192.168.33.11"))
	}
	w.put(pods...)
	w.sync()
	refused := 0
	for _, p := range pods {
		if w.refusal(p) != (coe.Refusal{}) {
			refused++
		}
	}
	require.Positive(t, refused)

	// Another process leads, and releases all addresses.
	deposed := w.store
	w.store = state.NewStore(func(c state.Changed) { w.mark(c.Namespaces...) }, coe.RESTCONF)
	w.assigner = w.newAssigner()
	require.NoError(t, w.assigner.Load(t.Context()))
	w.setPools(w.pools...)
	w.complete()
	w.sync()
	w.wait(3600e9)
	w.sync()
	require.Empty(t, w.journal.records)

	o := &follower{world: w, store: deposed, facts: journal.NewFacts(deposed)}
	o.follow(true)
	o.requireFacts()
	v := deposed.View("default")
	require.Len(t, v.Pods, len(pods))
	require.Empty(t, v.Leases)
	require.Empty(t, v.Refusals)
}

// TestUnreadableRecord: Apply skips an unreadable record, and applies the others.
func TestUnreadableRecord(t *testing.T) {
	w := newWorld(t, specPool())
	p := newPod("pod", "192.168.33.11")
	w.put(p)
	w.sync()
	o := newFollower(w)
	w.journal.records["lease/other/"] = []byte("no JSON")
	all, err := w.journal.Load(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, o.facts.Apply(true, all, nil), `read record "lease/other/"`)
	require.Len(t, o.store.View(p.Namespace).Leases, 1)
}

// TestAddressesThatRestCount: the released addresses of a pod count for its node until their
// rest is over, in the leader, in the next leader and in a follower.
func TestAddressesThatRestCount(t *testing.T) {
	w := newWorld(t, pool("default", "10.11.0.0/24", "", "", ""))
	node := addr("192.168.33.11")
	o := newFollower(w)
	resting := func(n int) {
		t.Helper()
		o.follow(n == 1)
		require.Equal(t, n, w.store.NodeUse(node).Resting)
		require.Equal(t, n, o.store.NodeUse(node).Resting)
	}
	for n := range 5 {
		w.put(newPod("p", node.String(), wanting(fmt.Sprint("10.11.0.", 10+n))))
		w.sync()
		resting(n)
	}
	w.restart()
	resting(4)
	w.put(newPod("p", node.String(), wanting("10.11.0.10"))) // it requests its first address again
	w.complete()
	w.sync()
	resting(4)
	w.wait(31 * time.Second)
	resting(0)
}
