// Package changes has the streams "changes=module:container", of every change of the data: one
// for each top container that clients can write, and for each read-only one that is Followed.
// The module coe-changes defines their notifications. The package does not know how streams
// are served.
package changes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Kind is the kind of the streams.
const Kind = "changes"

// The notifications of coe-changes.
const (
	Changed  = "coe-changes:entry-changed"
	Begin    = "coe-changes:snapshot-begin"
	Complete = "coe-changes:snapshot-complete"
)

// linger is how long the changes of the datastore are kept without a follower: a follower
// that comes back until then goes on where it was.
const linger = time.Hour

// Source is the source of the streams. Events of the datastore have its
// revisions, so a follower can go on at any replica and can replay. They are kept from the
// first follower on until there was none for a while, since they take as much memory as
// the data. Trees that are not in the datastore are read while somebody follows them
// (watch).
type Source struct {
	store  *datastore.Datastore
	stored *stream.Log
	names  map[*yang.Node]string // of the writable top containers
	watch  map[string]*watch
	linger time.Duration
	wake   chan struct{} // receives when stored must be kept

	mu        sync.Mutex
	kept      bool
	followers int
	left      time.Time // when there was one last
}

var _ stream.Replayer = (*Source)(nil)

// New makes the streams of a tree. lost is stream.Config's Lost.
func New(cfg tree.Config, lost func(stream string, revision int64), log *slog.Logger) *Source {
	c := &Source{
		store:  cfg.Datastore,
		stored: stream.NewLog(stream.Config{Identity: cfg.Datastore.Identity(), Begin: Begin, Complete: Complete, Lost: lost}),
		names:  map[*yang.Node]string{}, watch: map[string]*watch{},
		linger: linger, wake: make(chan struct{}, 1),
	}
	for _, module := range cfg.Schema.Modules {
		for _, top := range module.Top {
			name := wire.TopName(top)
			fixed, readOnly := cfg.ReadOnly[name]
			switch {
			case fixed.Followed:
				c.watch[name] = newWatch(top, fixed.Source, log)
			case !readOnly && top.Config && top.Kind == yang.Container:
				c.names[top] = name
			}
		}
	}
	return c
}

// Keys implements stream.Source.
func (c *Source) Keys() []string {
	keys := slices.AppendSeq(slices.Collect(maps.Values(c.names)), maps.Keys(c.watch))
	slices.Sort(keys)
	return keys
}

// Open implements stream.Source.
func (c *Source) Open(key, after string) (stream.Subscription, bool) {
	if w := c.watch[key]; w != nil {
		return w.open(after), true
	}
	if !c.hasLog(key) {
		return nil, false
	}
	c.enter()
	return &following{c.stored.Open(key, after), c}, true
}

// hasLog reports whether there is a stream of a container in the datastore.
func (c *Source) hasLog(key string) bool {
	return slices.Contains(slices.Collect(maps.Values(c.names)), key)
}

// Since implements stream.Replayer.
func (c *Source) Since(key string) (time.Time, bool) {
	return c.stored.Since(key), c.hasLog(key)
}

// OpenAt implements stream.Replayer.
func (c *Source) OpenAt(key string, start time.Time) stream.Subscription {
	c.enter()
	return &following{c.stored.OpenAt(key, start), c}
}

// following is one follower's place in the changes of the datastore.
type following struct {
	*stream.Cursor
	source *Source
}

// Close implements stream.Subscription.
func (f *following) Close() {
	f.Cursor.Close()
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.source.followers--
	f.source.left = time.Now()
}

// enter counts a follower, and has what it follows kept.
func (c *Source) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followers++
	if c.kept {
		return
	}
	c.kept = true
	select {
	case c.wake <- struct{}{}:
	default: // it is awake already
	}
}

// abandon reports whether there was no follower for so long that events need not be kept,
// and notes that they are not.
func (c *Source) abandon() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followers > 0 || time.Since(c.left) < c.linger {
		return false
	}
	c.kept = false
	return true
}

// Run keeps the streams until ctx ends, and then returns nil.
func (c *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, w := range c.watch {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx)
		}()
		defer func() { <-ended }()
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.stored.Settle(ctx, c.store.History)
	}()
	defer func() { <-settled }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		if err := c.keep(ctx); err != nil {
			cancel() // of those who are waited for
			return fmt.Errorf("follow the configuration: %w", err)
		}
	}
}

// keep keeps what the datastore has until it is abandoned, or ctx ends.
func (c *Source) keep(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	defer func() {
		cancel()
		<-watched
		c.stored.Forget()
	}()
	go func() {
		defer close(watched)
		defer cancel()
		tick := time.NewTicker(max(c.linger/4, time.Millisecond))
		defer tick.Stop()
		for !c.abandon() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	err := c.store.Follow(ctx, func(b datastore.Batch) error {
		c.take(b)
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take sends the changes of one revision of the datastore, a container before its entries.
func (c *Source) take(b datastore.Batch) {
	told := make([]stream.Change, 0, len(b.Put)+len(b.Delete))
	for _, u := range b.Delete {
		told = c.add(told, u)
	}
	for _, u := range b.Put {
		told = c.add(told, u)
	}
	slices.SortFunc(told, func(a, b stream.Change) int { return strings.Compare(a.Key, b.Key) })
	if b.History != "" {
		c.stored.Turn(b.Revision, b.History)
	}
	if b.Snapshot {
		c.stored.Reset(b.Revision, told)
	} else {
		c.stored.Apply(b.Revision, told)
	}
}

// add appends the change of one unit; a unit without content is gone.
func (c *Source) add(told []stream.Change, u *datastore.Unit) []stream.Change {
	name := c.names[u.Node.Top()]
	if name == "" {
		return told
	}
	at := tree.StepsTo(u.Node)
	at[len(at)-1].Keys = u.Key
	var value []byte
	if u.Raw != nil {
		value = wire.AsTree(at, u.Raw)
	}
	return append(told, changeOf(name, wire.RFC8040.URL(at), value))
}

// changeOf is the change of one entry in a stream: it is gone, or has this value.
// The target's path needs no escapes in JSON.
func changeOf(name, target string, value []byte) stream.Change {
	change := stream.Change{Stream: name, Key: target, Name: Changed, Gone: value == nil}
	if change.Gone {
		change.Content = []byte(`{"operation":"deleted","target":"` + target + `"}`)
		return change
	}
	change.Content = slices.Concat([]byte(`{"operation":"put","target":"`+target+`","value":`), value, []byte("}"))
	return change
}
