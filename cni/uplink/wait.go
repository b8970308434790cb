package uplink

import (
	"context"
	"fmt"
)

// Await waits for a record that fits, and returns it. The caller must not change it. If ctx
// ends first, the error includes the state of the connection to the bridge.
func (u *Uplink) Await(ctx context.Context, fits func(*Record) bool) (*Record, error) {
	for {
		u.mu.Lock()
		found, status, changed := u.state.find(fits), u.status, u.changed
		u.mu.Unlock()
		if found != nil {
			return found, ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if status.Connected {
				return nil, fmt.Errorf("the bridge has sent no record for node %s: %w", u.cfg.Node, ctx.Err())
			}
			return nil, fmt.Errorf("no connection to the bridge (%w), and no earlier record: %w", status.Err, ctx.Err())
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

// Status returns the state of the connection to the bridge.
func (u *Uplink) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

// ID returns the ID of the last event; empty if the bridge has never sent one.
func (u *Uplink) ID() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.id
}

// Count returns the number of interface records.
func (u *Uplink) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.state.records)
}

// Find returns a record that fits, or nil. The caller must not change it.
func (u *Uplink) Find(fits func(*Record) bool) *Record {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.find(fits)
}

// Records returns the interface records. The caller must change neither the map nor a record.
func (u *Uplink) Records() map[string]*Record {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.records
}

// Network returns the identity of the datastore from which OpenDaylight programs the node's
// switch, empty while it is unknown, and a channel that is closed at the next change.
func (u *Uplink) Network() (identity string, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.network, u.changed
}

// Place returns the node's place, or nil, and a channel that is closed at the next change.
// known is false as long as neither this process nor the saved state knows whether the
// node has a place.
func (u *Uplink) Place() (place *Place, known bool, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.place, u.status.Synced || u.state.place != nil, u.changed
}

// HealthChecks returns the ports on which the node answers health checks of load balancers, in order. The caller
// must change none of them. known is that of TakeExposed.
func (u *Uplink) HealthChecks() (checks []*HealthCheck, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return sortedChecks(u.state.checks), u.status.Synced || u.sameBoot
}

// Egress returns the part of the node in egress addresses; nil for none. It is known if it was received since the node
// has booted: a node that holds an address from before may have lost it to another one.
func (u *Uplink) Egress() (egress *Egress, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.egress, u.status.Synced || u.sameBoot
}
