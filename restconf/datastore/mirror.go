package datastore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/yang"
)

// mirror holds all units as they were at one revision of etcd. The change of one revision
// changed becomes visible as a whole.
type mirror struct {
	mu    sync.RWMutex
	rev   int64
	shelf map[*yang.Node][]*Unit // by top container, ordered by id
	// changed is when what is in a top container last changed; Time is that of the
	// container's mark.
	changed map[*yang.Node]Change
	since   time.Time // when the datastore was opened
	waits   []wait
	follow  map[*follower]struct{}
	history string        // of the revisions, as HistoryRecord says
	closed  chan struct{} // when why is set
	ending  sync.Once
	why     error
}

type wait struct {
	rev   int64
	ready chan struct{}
}

func newMirror() *mirror {
	return &mirror{
		shelf:   map[*yang.Node][]*Unit{},
		changed: map[*yang.Node]Change{},
		since:   time.Now().Truncate(time.Second),
		follow:  map[*follower]struct{}{},
		closed:  make(chan struct{}),
	}
}

// end has followers and waiting writes return why, unless the mirror has ended before.
func (m *mirror) end(why error) {
	m.ending.Do(func() {
		m.why = why
		close(m.closed)
	})
}

func (m *mirror) revision() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.rev
}

func find(shelf []*Unit, id string) (int, bool) {
	return slices.BinarySearchFunc(shelf, id, func(u *Unit, id string) int { return strings.Compare(u.id, id) })
}

// get is the unit id of top, or nil.
func (m *mirror) get(top *yang.Node, id string) *Unit {
	m.mu.RLock()
	defer m.mu.RUnlock()
	shelf := m.shelf[top]
	if i, ok := find(shelf, id); ok {
		return shelf[i]
	}
	return nil
}

// tree are all units of top at one revision, ordered by id: the container's own
// first.
func (m *mirror) tree(top *yang.Node) []*Unit {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.shelf[top])
}

// all are the units of all top containers at one revision.
func (m *mirror) all() map[*yang.Node][]*Unit {
	m.mu.RLock()
	defer m.mu.RUnlock()
	shelf := make(map[*yang.Node][]*Unit, len(m.shelf))
	for top, units := range m.shelf {
		shelf[top] = slices.Clone(units)
	}
	return shelf
}

// apply makes the changes of one revision. It drops a deletion from the batch if the unit
// does not exist. It is linear in the number of units and of changes, so that a change of
// many units does not keep readers waiting.
func (m *mirror) apply(b Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	added := map[*yang.Node][]*Unit{}
	for _, u := range b.Put {
		top := topOf(u.Node)
		if i, ok := find(m.shelf[top], u.id); ok {
			m.shelf[top][i] = u
		} else {
			added[top] = append(added[top], u)
		}
	}
	removed := map[*yang.Node][]int{}
	b.Delete = slices.DeleteFunc(b.Delete, func(u *Unit) bool {
		top := topOf(u.Node)
		i, ok := find(m.shelf[top], u.id)
		if ok {
			removed[top] = append(removed[top], i)
		}
		return !ok
	})
	for top, places := range removed {
		m.shelf[top] = without(m.shelf[top], places)
	}
	for top, units := range added {
		m.shelf[top] = with(m.shelf[top], units)
	}
	m.advance(b)
}

// with is shelf and the units that are added to it.
func with(shelf, added []*Unit) []*Unit {
	slices.SortFunc(added, func(a, b *Unit) int { return strings.Compare(a.id, b.id) })
	end := len(shelf)
	shelf = append(shelf, added...)
	for n := len(added) - 1; n >= 0; n-- { // what is above each moves to its end place at once
		at, _ := find(shelf[:end], added[n].id)
		copy(shelf[at+n+1:], shelf[at:end])
		shelf[at+n] = added[n]
		end = at
	}
	return shelf
}

// without returns shelf without the units in these places.
func without(shelf []*Unit, places []int) []*Unit {
	for _, i := range places {
		shelf[i] = nil
	}
	first := slices.Min(places)
	left := slices.DeleteFunc(shelf[first:], func(u *Unit) bool { return u == nil })
	return shelf[:first+len(left)]
}

// replace makes the mirror hold exactly units, as of rev, and tells the
// followers the difference.
func (m *mirror) replace(units []*Unit, marks []mark, history string, rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := Batch{Revision: rev, History: history, marks: marks}
	shelf := map[*yang.Node][]*Unit{}
	for _, u := range units {
		top := topOf(u.Node)
		old := m.shelf[top]
		i, ok := find(old, u.id)
		if !ok || old[i].ModRevision != u.ModRevision {
			b.Put = append(b.Put, u)
		}
		shelf[top] = append(shelf[top], u)
	}
	for top, old := range m.shelf {
		for _, u := range old {
			if _, ok := find(shelf[top], u.id); !ok {
				b.Delete = append(b.Delete, &Unit{Node: u.Node, Key: u.Key, id: u.id}) // its mark tells the revision
			}
		}
	}
	m.shelf = shelf
	m.advance(b)
}

// advance tells those who wait that the mirror is at b's revision.
func (m *mirror) advance(b Batch) {
	m.rev = b.Revision
	if b.History != "" {
		m.history = b.History
	}
	m.note(b)
	m.waits = slices.DeleteFunc(m.waits, func(w wait) bool {
		if w.rev <= m.rev {
			close(w.ready)
		}
		return w.rev <= m.rev
	})
	for f := range m.follow {
		f.push(b)
	}
}

// reach waits until the mirror shows revision rev.
func (m *mirror) reach(ctx context.Context, rev int64) error {
	m.mu.Lock()
	if m.rev >= rev {
		m.mu.Unlock()
		return nil
	}
	w := wait{rev, make(chan struct{})}
	m.waits = append(m.waits, w)
	m.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-m.closed:
		return m.why
	case <-ctx.Done():
		m.forget(w)
		return ctx.Err()
	}
}

func (m *mirror) forget(w wait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = slices.DeleteFunc(m.waits, func(other wait) bool { return other == w })
}

// topOf is the top container of n.
func topOf(n *yang.Node) *yang.Node {
	for n.Parent != nil {
		n = n.Parent
	}
	return n
}
