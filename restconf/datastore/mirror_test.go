package datastore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever one revision puts and deletes, the mirror is what a map would be, in
// the order of ids.
func TestMirrorApplies(t *testing.T) {
	s := newShapes()
	l := newLayout(s.schema)
	random := rand.New(rand.NewPCG(1, 2))
	m, want := newMirror(), map[string]string{}
	for revision := range int64(300) {
		b := Batch{Revision: revision + 1}
		for i, key := range random.Perm(40)[:random.IntN(20)] {
			u := &Unit{Node: s.pods, Key: []string{fmt.Sprint(key)}, Raw: fmt.Append(nil, revision)}
			u.id = l.id(u.Node, u.Key)
			if i%2 == 0 {
				b.Put = append(b.Put, u)
				want[u.id] = string(u.Raw)
			} else {
				b.Delete = append(b.Delete, u)
				delete(want, u.id)
			}
		}
		m.apply(b)
		shown := []string{}
		for _, id := range slices.Sorted(maps.Keys(want)) {
			shown = append(shown, id+" "+want[id])
		}
		require.Equal(t, shown, show(m.tree(s.coe)))
		require.Equal(t, b.Revision, m.revision())
	}
}

func TestMirrorTellsOnlyWhatWasThere(t *testing.T) {
	s := newShapes()
	m, f := newMirror(), &follower{wake: make(chan struct{}, 1)}
	m.attach(f)
	f.take()
	m.apply(Batch{Revision: 1, Delete: []*Unit{{Node: s.pods, Key: []string{"a"}, id: "pod:coe/pods=a"}}})
	require.Equal(t, []Batch{{Revision: 1, Delete: []*Unit{}}}, f.take())
}
