package changes

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// How often a tree that is watched is looked at, and how long that may take.
const (
	watchEvery   = time.Second
	watchTimeout = 10 * time.Second
)

// watch makes a stream of a tree that is not in the datastore. While somebody follows it,
// the tree is read repeatedly, and the differences are sent. Its revisions are its own, and
// start again with the first follower, which gets a snapshot.
type watch struct {
	top    *yang.Node
	source tree.Source
	log    *slog.Logger
	wake   chan struct{}

	mu        sync.Mutex
	followers int
	events    *stream.Log
	revision  int64
	// told is the last event of each entry for followers, by target; nil: nothing yet.
	told map[string][]byte
}

func newWatch(top *yang.Node, source tree.Source, log *slog.Logger) *watch {
	return &watch{top: top, source: source, log: log, wake: make(chan struct{}, 1)}
}

// open begins to follow.
func (w *watch) open(after string) stream.Subscription {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followers == 0 {
		w.events = stream.NewLog(stream.Config{Identity: rand.Text(), Begin: Begin, Complete: Complete})
		w.revision, w.told = 0, nil
		select {
		case w.wake <- struct{}{}:
		default: // it is awake already
		}
	}
	w.followers++
	return &watching{w.events.Open("", after), w}
}

// watching is one follower's place.
type watching struct {
	*stream.Cursor
	watch *watch
}

// Close implements stream.Subscription.
func (s *watching) Close() {
	s.Cursor.Close()
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.followers--
}

func (w *watch) isFollowed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.followers > 0
}

// run looks at the tree while it is followed, until ctx ends.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-tick.C:
		}
		if w.isFollowed() {
			w.look(ctx)
		}
	}
}

// look reads the tree and sends the differences.
func (w *watch) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	d, err := w.source.Get(bounded, tree.Asked{Content: tree.ContentOperational, Top: w.top})
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("a tree that clients follow can't be read", "tree", wire.TopName(w.top), "err", err)
		}
		return
	}
	w.tell(entriesOf(d))
}

// tell sends the entries that differ from the last look.
func (w *watch) tell(now map[string][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var changes []stream.Change
	for _, at := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(now[at], w.told[at]) {
			changes = append(changes, changeOf("", at, now[at]))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(w.told)) {
		if now[at] == nil {
			changes = append(changes, changeOf("", at, nil))
		}
	}
	first := w.told == nil
	w.told = now
	switch {
	case first:
		w.revision++
		w.events.Reset(w.revision, changes)
	case len(changes) > 0:
		w.revision++
		w.events.Apply(w.revision, changes)
	}
}

// entriesOf are the entries of a tree that are sent one by one, and the rest of the tree, by
// target, each in the JSON of RFC 7951 below the datastore. A nil tree has none.
func entriesOf(d *yang.Data) map[string][]byte {
	all := map[string][]byte{}
	if d == nil {
		return all
	}
	own, entries := tree.Split(d)
	for _, one := range append(entries, own) {
		at := tree.StepsTo(one.Node)
		at[len(at)-1] = tree.StepOf(one)
		var raw bytes.Buffer
		yang.EncodeObject(&raw, one)
		all[wire.RFC8040.URL(at)] = wire.AsTree(at, raw.Bytes())
	}
	return all
}
