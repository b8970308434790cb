package stream

import (
	"slices"
	"time"
)

// nowhere is the place of a follower that needs a snapshot.
const nowhere = -1

// Cursor is a follower's place in a stream of a Log.
type Cursor struct {
	log    *Log
	stream string
	feed   *feed
	ready  chan struct{}
	// after is the revision up to which all was taken. It may be ahead of the Log if
	// the follower comes from a replica that is ahead of this one. The follower gets
	// what comes after.
	after int64
	// claim is what the follower's ID says, until it is decided what that is worth.
	claim *place
}

var _ Subscription = (*Cursor)(nil)

// Open begins to follow a stream after the event of an ID.
func (l *Log) Open(stream, after string) *Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open(stream, nowhere)
	c.claim = l.parse(after)
	return c
}

// OpenAt begins to follow a stream after what the Log had learned of it before a
// time; with a snapshot, where the Log does not reach back to that.
func (l *Log) OpenAt(stream string, start time.Time) *Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open(stream, l.feed(stream).before(start))
}

func (l *Log) open(stream string, after int64) *Cursor {
	c := &Cursor{log: l, stream: stream, feed: l.feed(stream), ready: make(chan struct{}, 1), after: after}
	c.feed.cursors[c] = struct{}{}
	c.ready <- struct{}{}
	return c
}

// before is the place before all events from a time on.
func (f *feed) before(start time.Time) int64 {
	if !start.After(f.since) {
		return nowhere
	}
	for place := f.order.Back(); place != nil; place = place.Prev() {
		if e := place.Value.(*entry); e.event.Time.Before(start) {
			return e.revision
		}
	}
	return f.floor
}

func (c *Cursor) wake() {
	select {
	case c.ready <- struct{}{}:
	default: // it is awake already
	}
}

// Ready implements Subscription.
func (c *Cursor) Ready() <-chan struct{} { return c.ready }

// Close implements Subscription.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	delete(c.feed.cursors, c)
	c.log.release(c.stream, c.feed)
}

// Take implements Subscription.
func (c *Cursor) Take() []Event {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	switch {
	case c.log.revision == 0 || !c.decide():
		return nil
	case c.after < c.feed.floor:
		return c.snapshot()
	}
	return c.changes()
}

// snapshot is the group of all that the stream has.
func (c *Cursor) snapshot() []Event {
	now := time.Now()
	events := make([]Event, 0, c.feed.order.Len()+2)
	events = append(events, Event{Time: now, Name: c.log.cfg.Begin, Content: empty, Bound: true})
	for place := c.feed.order.Front(); place != nil; place = place.Next() {
		if e := place.Value.(*entry); !e.gone {
			events = append(events, e.event)
		}
	}
	c.after = c.log.revision
	return append(events, Event{ID: c.log.id(c.after), Time: now, Name: c.log.cfg.Complete, Content: empty, Bound: true})
}

// empty is a notification without content.
var empty = []byte("{}")

// changes is the group of the events after the cursor's place. It can't be divided:
// a key that has changed more than once stands only where it did last.
func (c *Cursor) changes() []Event {
	var events []Event
	for place := c.feed.order.Back(); place != nil && place.Value.(*entry).revision > c.after; place = place.Prev() {
		events = append(events, place.Value.(*entry).event)
	}
	if len(events) == 0 {
		return nil
	}
	slices.Reverse(events)
	c.after = c.feed.order.Back().Value.(*entry).revision
	events[len(events)-1].ID = c.log.id(c.after)
	return events
}
