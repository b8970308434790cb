package odl

import (
	"context"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// Bounds of the time between attempts to connect while watching.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Second
)

// pollShare limits the comparisons to one part in pollShare of the time.
const pollShare = 20

// maxDiffering is the number of consecutive comparisons that differ after which Watch logs
// that an external writer repeats its changes.
const maxDiffering = 4

// comparison is the result of a comparison.
type comparison int

const (
	unknown comparison = iota
	agrees
	differs
)

// Watch keeps a session open. It calls changed when the session that a successful Read used
// is not the current one any more, when the controller is reachable again, and when our entries
// differ from those that were read and written. It returns when ctx ends.
//
// Watch also asks for the routes of switches again (operational.Network.KeepRoutes), and keeps the shards of a cluster working (shards.Keeper.Keep).
//
// Watch reads the entries to compare them. It does not use OpenDaylight's notifications:
// they report our own writes too, need a second connection that a restart closes without
// notice, and exist in one dialect only.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { b.network.KeepRoutes(ctx) })
	if len(b.urls) > 1 {
		others.Go(func() { b.shards.Keep(ctx) })
	}
	retry, missed, changes := minRetry, false, 0
	poll := time.Now().Add(b.cfg.Poll)
	for ctx.Err() == nil {
		err := b.probe(ctx)
		if b.readEnded(ctx) || missed && err == nil {
			changed()
		}
		missed = err != nil
		if err != nil {
			b.log.Debug("cannot reach OpenDaylight", "err", err)
			pause(ctx, retry)
			retry = min(2*retry, maxRetry)
			continue
		}
		retry = minRetry
		if begun := time.Now(); begun.After(poll) {
			switch b.compare(ctx) {
			case differs:
				changed()
				if changes++; changes == maxDiffering {
					b.log.Warn("an external writer keeps changing the bridge's entries in OpenDaylight; the bridge restores them each time: find the other writer and stop it")
				}
			case agrees:
				changes = 0
			}
			poll = time.Now().Add(max(b.cfg.Poll, pollShare*time.Since(begun)))
		}
		pause(ctx, min(b.cfg.Probe, max(time.Until(poll), minRetry)))
	}
	return ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// readEnded reports once whether the session that a Read used has ended.
func (b *Backend) readEnded(ctx context.Context) bool {
	if b.acquire(ctx) != nil {
		return false
	}
	defer b.release()
	return b.readSessions.Ended(b.session)
}

// probe checks that the controller answers and is ready.
func (b *Backend) probe(ctx context.Context) error {
	if err := b.acquire(ctx); err != nil {
		return err
	}
	found := b.session == nil // connected checks a new controller
	s, err := b.connected(ctx)
	b.release()
	if err != nil || found {
		return err
	}
	if err = s.Ready(ctx); ctx.Err() == nil && (err != nil || s.HasBetter(ctx)) {
		b.lose(s)
	}
	return err
}

// lose drops a session if it is still the current one. The next session is tried with the
// same controller first: if it is gone, that fails at once.
func (b *Backend) lose(s *controller.Session) {
	<-b.lock
	defer b.release()
	if b.session == s {
		b.setSession(nil)
		b.mirror = nil
	}
}

// compare reads our entries, without the lock, and compares them with the mirror. The result
// is unknown if the reading fails. Then the next session is tried with another controller, if there is one and this one
// cannot read a single entry either. A controller that is only slow is not left.
func (b *Backend) compare(ctx context.Context) comparison {
	s, m, then := b.snapshot(ctx)
	if m == nil {
		return unknown
	}
	now, err := readAll(ctx, s)
	if err != nil {
		b.log.Debug("compare with OpenDaylight", "err", err)
		if len(b.urls) > 1 && !canRead(ctx, s) && b.acquire(ctx) == nil {
			if b.session == s && b.mirror == m { // it was not read meanwhile
				b.discard()
			}
			b.release()
		}
		return unknown
	}
	if b.acquire(ctx) != nil {
		return unknown
	}
	defer b.release()
	if b.mirror != m {
		return unknown // it was read meanwhile
	}
	if !m.Agrees(now, then) {
		b.mirror = nil
		return differs
	}
	m.ForgetTouched(then)
	return agrees
}

// canRead reports whether the controller can read an entry, or knows that it does not exist.
func canRead(ctx context.Context, s *controller.Session) bool {
	_, err := s.Look(ctx, &s.Lists[codec.AccessLists], []string{codec.Probe().Key()})
	return err == nil
}

// snapshot returns the session and the mirror, and the mirror's clock.
func (b *Backend) snapshot(ctx context.Context) (*controller.Session, *codec.Mirror, uint64) {
	if b.acquire(ctx) != nil {
		return nil, nil, 0
	}
	defer b.release()
	if b.session == nil || b.mirror == nil {
		return nil, nil, 0
	}
	return b.session, b.mirror, b.mirror.Clock
}
