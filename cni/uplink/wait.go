package uplink

import (
	"context"
	"fmt"
)

// Await waits until there is a record that fits, and returns it; it is not to be
// changed. When ctx ends before, the error tells how the connection to the bridge is.
func (u *Uplink) Await(ctx context.Context, fits func(*Record) bool) (*Record, error) {
	for {
		u.mu.Lock()
		found, is, changed := u.state.find(fits), u.is, u.changed
		u.mu.Unlock()
		if found != nil {
			return found, ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if is.Connected {
				return nil, fmt.Errorf("the bridge tells nothing of it on node %s: %w", u.cfg.Node, ctx.Err())
			}
			return nil, fmt.Errorf("there is no connection to the bridge (%w), and it was not told of before: %w", is.Err, ctx.Err())
		}
	}
}

func (s *state) find(fits func(*Record) bool) *Record {
	for _, r := range s.records {
		if fits(r) {
			return r
		}
	}
	return nil
}

// Standing is how the connection to the bridge is.
func (u *Uplink) Standing() Standing {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.is
}

// ID is that of the last event that was taken; empty when nothing was ever told.
func (u *Uplink) ID() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.id
}

// Count is how many interfaces the node has, as far as the bridge has told.
func (u *Uplink) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.state.records)
}

// Find is Await that does not wait: nil where there is no such record.
func (u *Uplink) Find(fits func(*Record) bool) *Record {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.find(fits)
}

// Network names the datastore from which the network's controller programs the node's switch,
// and a channel that is closed when anything has changed. It is empty while the bridge does
// not tell.
func (u *Uplink) Network() (identity string, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.network, u.changed
}

// Place is the node's own place in the network, and a channel that is closed when
// anything has changed; known tells whether the bridge has told of it since it was
// connected or, in an earlier process, whether the node has one.
func (u *Uplink) Place() (is *Place, known bool, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.place, u.is.Synced || u.state.place != nil, u.changed
}
