package stream

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A datastore that is restored from a backup counts its revisions again from the
// backup's on: one revision may then name two states. A history names the run of
// revisions that nothing has interrupted. It changes whenever a replica opens the
// datastore, and thus after every restore, and never comes back.

// span is a history and the revision from which on it is in force, until the next span.
type span struct {
	from    int64
	history string
}

// place is what an ID says.
type place struct {
	revision int64
	history  string
	format   string
}

// askAgain is how long Settle waits until it asks again.
const askAgain = time.Second

// Turn notes that another history is in force from a revision on. It is called before
// Reset or Apply of that revision.
func (l *Log) Turn(revision int64, history string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.history() == history {
		return
	}
	l.spans = append(l.spans, span{revision, history})
	for _, f := range l.feeds {
		for c := range f.cursors {
			if c.claim != nil {
				c.wake()
			}
		}
	}
}

// history is the last one.
func (l *Log) history() string {
	if len(l.spans) == 0 {
		return ""
	}
	return l.spans[len(l.spans)-1].history
}

// inForce is the history that a revision belongs to.
func (l *Log) inForce(revision int64) string {
	for _, s := range slices.Backward(l.spans) {
		if s.from <= revision {
			return s.history
		}
	}
	return ""
}

func (l *Log) knows(history string) bool {
	return history == "" || slices.ContainsFunc(l.spans, func(s span) bool { return s.history == history })
}

// id writes a place as followers see it.
func (l *Log) id(revision int64) string {
	id := strconv.FormatInt(revision, 10) + "@" + l.cfg.Identity
	if l.cfg.Format != "" {
		id += "~" + l.cfg.Format
	}
	if history := l.inForce(revision); history != "" {
		id += "." + history
	}
	return id
}

// parse reads what id wrote; nil where that is of another datastore.
func (l *Log) parse(id string) *place {
	text, name, _ := strings.Cut(id, "@")
	name, history, _ := strings.Cut(name, ".")
	identity, format, _ := strings.Cut(name, "~")
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 || identity != l.cfg.Identity {
		return nil
	}
	return &place{revision, history, format}
}

// decide finds out where a cursor is that an ID was given for, and reports whether it
// could. It cannot yet if the ID is ahead of the Log and of a history that the Log does
// not know: the Log may be behind, or the history may be lost. Nor can it if the ID is ahead
// and of another format. The caller holds the lock.
func (c *Cursor) decide() bool {
	l, claim := c.log, c.claim
	switch {
	case claim == nil:
		return true
	case claim.revision < c.feed.floor:
		c.after = nowhere
	case l.inForce(claim.revision) == claim.history && claim.format == l.cfg.Format:
		c.after = claim.revision
	case l.inForce(claim.revision) == claim.history && claim.revision <= l.revision:
		c.after = nowhere
	case l.inForce(claim.revision) == claim.history: // an older snapshot would undo what the follower has
		l.waiting = append(l.waiting, c)
		return false
	case l.knows(claim.history) || claim.revision <= l.revision:
		c.refuse()
	default:
		l.doubt()
		return false
	}
	c.claim = nil
	return true
}

// refuse gives a snapshot to a follower whose ID is of another history.
func (c *Cursor) refuse() {
	if c.claim.history != "" && c.log.cfg.Lost != nil { // IDs of older releases have none
		c.log.cfg.Lost(c.stream, c.claim.revision)
	}
	c.claim, c.after = nil, nowhere
}

// doubt has Settle look soon.
func (l *Log) doubt() {
	select {
	case l.doubts <- struct{}{}:
	default: // it looks soon
	}
}

// Settle decides about followers whose IDs are ahead of the Log and of histories that it
// does not know, until ctx ends. current asks the datastore for its history now. A
// follower of which that is not the history, although the Log has reached it, is from
// before a restore.
func (l *Log) Settle(ctx context.Context, current func(context.Context) (string, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.doubts:
		}
		doubtful := l.doubtful()
		if history, err := current(ctx); err == nil {
			l.settle(doubtful, history)
		}
		if len(l.doubtful()) == 0 {
			continue
		}
		timer := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		l.doubt()
	}
}

func (l *Log) doubtful() (all []*Cursor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.feeds {
		for c := range f.cursors {
			if c.claim != nil && l.revision > 0 {
				all = append(all, c)
			}
		}
	}
	return all
}

// settle refuses the IDs of followers that were in doubt before history was asked for.
func (l *Log) settle(doubtful []*Cursor, history string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.history() != history {
		return // the Log is behind
	}
	for _, c := range doubtful {
		if c.claim != nil && !c.decide() && c.claim.history != history {
			c.refuse()
			c.wake()
		}
	}
}
