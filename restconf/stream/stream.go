// Package stream has event streams (RFC 8040 section 6): the events, the contract between
// the owner and the server of a stream, Log, and Server, which sends events over HTTP. A Log
// keeps, for many streams, the events that their followers have not received yet.
//
// The package knows neither the datastore nor the meaning of the events. The server of a
// request decides who may follow a stream (Caller). The promises of a Log:
//
//   - A follower gets the latest event of every key that has changed. It may miss a value
//     that was replaced before it was sent, but never the current value. So an event is
//     whole: it has all there is to report of its key.
//   - Events come in groups, and the last of a group has an ID. A follower that has taken a group
//     as a whole knows the stream exactly as it was at the revision of that ID.
//   - With that ID a follower can continue at any replica. A replica that is behind sends nothing
//     until it has later events. So a follower that takes whole groups never gets an older state.
//   - If a follower cannot continue, the group is a snapshot: a key that it does not contain does
//     not exist. An ID of a history that a restore has ended always gets a snapshot.
package stream

import "time"

// Event is one notification, as it goes to followers.
type Event struct {
	// ID names the place after this event, which is the last one of its group. It is empty if
	// further events of the group follow.
	ID   string
	Time time.Time // when the source learned of it
	// Name is the notification's, "module:name".
	Name string
	// Content is the notification's RFC 7951 object, on one line. It must not be changed.
	Content []byte
	// Bound says that the event is the start or the end of a snapshot, and has no key. A filter
	// must not remove it.
	Bound bool
}

// Source has streams of one kind: one of each key.
type Source interface {
	// Keys lists the streams that there are now, for people to choose from; Open may
	// know more. A kind of one stream has the key "".
	Keys() []string
	// Open begins to follow the stream of a key. after is the ID of the last event that the
	// follower has taken, or empty. If the source cannot continue after it, the follower gets a
	// snapshot. ok is false if the stream does not exist.
	Open(key, after string) (s Subscription, ok bool)
}

// Replayer is a Source whose streams can be followed from a time on.
type Replayer interface {
	Source
	// Since is when the log of a stream begins; ok is false where the stream has none,
	// or the stream does not exist.
	Since(key string) (at time.Time, ok bool)
	// OpenAt begins to follow a stream that has a log after what had happened before a
	// time. Where that time is before the log, the first group is a snapshot.
	OpenAt(key string, start time.Time) Subscription
}

// Subscription is one follower's place in a stream. It is used by one goroutine.
type Subscription interface {
	// Take returns the group of the events since the last Take, or nil if there are none. It does
	// not wait.
	Take() []Event
	// Ready receives a value when there may be events to Take.
	Ready() <-chan struct{}
	Close()
}
