package stream

import (
	"bytes"
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"
)

// DefaultGraves is how many removals a Log remembers.
const DefaultGraves = 16384

// Config is the configuration of a Log.
type Config struct {
	// Identity is what revisions belong to: IDs of another one are not gone on from.
	Identity string
	// Format names the form of the contents, in IDs too. A follower with an ID of another
	// form gets a snapshot. It has no dot; "" is the form of IDs without one.
	Format string
	// Begin and Complete are the names of the notifications that stand around a
	// snapshot. A key that is not between them is gone.
	Begin, Complete string
	// Graves is how many removals are remembered, over all streams, for those who
	// come back or are slow; 0 means DefaultGraves. A follower that missed more gets a
	// snapshot.
	Graves int
	// Lost is called for followers with the ID of a history that a restore has ended;
	// nil: no call. It is called under the Log's lock.
	Lost func(stream string, revision int64)
}

// Log keeps the latest event of every key of many streams, in the order of
// revisions. A follower is due the events after its
// revision: so a follower costs the same however far it is behind, and nobody waits
// for it. It is safe for use by many goroutines.
type Log struct {
	cfg Config

	mu       sync.Mutex
	revision int64 // 0 before a Reset
	// floor and since are for streams that are in no feed.
	floor  int64
	since  time.Time
	feeds  map[string]*feed
	graves []grave // in the order of revisions
	// spans are the histories since the floor, which has the first.
	spans  []span
	doubts chan struct{} // receives when a follower's ID is in doubt
	// waiting are those who get a snapshot when the Log has reached their IDs.
	waiting []*Cursor
}

// feed is one stream. It is there while it has events or followers.
type feed struct {
	// floor is the revision after which all changes are known: older removals may
	// have been forgotten. That was so since then.
	floor   int64
	since   time.Time
	keys    map[string]*list.Element // of order
	order   list.List                // of *entry, by revision
	cursors map[*Cursor]struct{}
}

// entry is the latest event of a key. Streams with the same event of a key share it, so it is not changed.
type entry struct {
	key      string
	revision int64
	gone     bool
	event    Event // without ID
}

// grave is where a removal is remembered.
type grave struct {
	stream, key string
	revision    int64
}

// Change is what a revision did to one key of a stream.
type Change struct {
	Stream, Key string
	Name        string // of the notification
	Content     []byte
	// Gone is set if the key was removed: a snapshot leaves it out.
	Gone bool
}

// NewLog returns a Log that knows nothing yet: its followers wait.
func NewLog(cfg Config) *Log {
	if cfg.Graves <= 0 {
		cfg.Graves = DefaultGraves
	}
	return &Log{cfg: cfg, feeds: map[string]*feed{}, doubts: make(chan struct{}, 1)}
}

// Reset makes the Log hold exactly what changes say, as of a revision. The revision must
// not be below one that a follower has had. A follower that knows less than this gets a
// snapshot.
func (l *Log) Reset(revision int64, changes []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(revision, time.Now())
	l.apply(l.since, changes)
}

// Forget makes the Log know nothing again: its followers wait for the next Reset.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(0, time.Time{})
}

// begin forgets all up to a revision.
func (l *Log) begin(revision int64, now time.Time) {
	l.revision, l.floor, l.since, l.graves = revision, revision, now, nil
	if len(l.spans) > 0 {
		l.spans = []span{{revision, l.history()}}
	}
	maps.DeleteFunc(l.feeds, func(_ string, f *feed) bool {
		f.clear(revision, now)
		return len(f.cursors) == 0
	})
}

// Apply takes what one revision changed, which is above all before. Nothing is
// told of it before it is there as a whole.
func (l *Log) Apply(revision int64, changes []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = revision
	l.apply(time.Now(), changes)
	l.forget()
	for _, c := range l.waiting {
		c.wake()
	}
	l.waiting = nil
}

func (l *Log) apply(now time.Time, changes []Change) {
	latest := map[string]*entry{}
	for _, c := range changes {
		e := latest[c.Key]
		if e == nil || e.gone != c.Gone || e.event.Name != c.Name || !bytes.Equal(e.event.Content, c.Content) {
			e = &entry{key: c.Key, revision: l.revision, gone: c.Gone, event: Event{Time: now, Name: c.Name, Content: c.Content}}
			latest[c.Key] = e
		}
		l.feed(c.Stream).put(e)
		if c.Gone {
			l.graves = append(l.graves, grave{c.Stream, c.Key, l.revision})
		}
	}
}

// forget drops the oldest removals that are too many.
func (l *Log) forget() {
	for len(l.graves) > l.cfg.Graves {
		g := l.graves[0]
		l.graves = l.graves[1:]
		f := l.feeds[g.stream]
		if f == nil {
			continue
		}
		place := f.keys[g.key]
		if place == nil || place.Value.(*entry).revision != g.revision {
			continue // it came back
		}
		f.order.Remove(place)
		delete(f.keys, g.key)
		f.floor, f.since = g.revision, place.Value.(*entry).event.Time
		l.release(g.stream, f)
	}
}

// feed returns a stream; of one that is new nothing has changed since the floor.
func (l *Log) feed(name string) *feed {
	f := l.feeds[name]
	if f == nil {
		f = &feed{floor: l.floor, since: l.since, keys: map[string]*list.Element{}, cursors: map[*Cursor]struct{}{}}
		l.feeds[name] = f
	}
	return f
}

// release lets a feed go that nobody needs.
func (l *Log) release(name string, f *feed) {
	if len(f.keys) == 0 && len(f.cursors) == 0 {
		delete(l.feeds, name)
		if f.floor > l.floor {
			l.floor, l.since = f.floor, f.since
		}
	}
}

// Streams lists the streams that have something.
func (l *Log) Streams() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, f := range l.feeds {
		if f.lives() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Since is when what the Log knows of a stream's past begins; zero while it knows
// nothing.
func (l *Log) Since(stream string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.feeds[stream]; f != nil {
		return f.since
	}
	return l.since
}

func (f *feed) lives() bool {
	for place := f.order.Back(); place != nil; place = place.Prev() {
		if !place.Value.(*entry).gone {
			return true
		}
	}
	return false
}

// put makes e the latest event of its key and of the feed, and wakes the followers.
func (f *feed) put(e *entry) {
	if old := f.keys[e.key]; old != nil {
		f.order.Remove(old)
	}
	f.keys[e.key] = f.order.PushBack(e)
	f.wake()
}

// clear forgets all up to a revision.
func (f *feed) clear(floor int64, since time.Time) {
	f.floor, f.since = floor, since
	f.order.Init()
	clear(f.keys)
	f.wake()
}

func (f *feed) wake() {
	for c := range f.cursors {
		c.wake()
	}
}
