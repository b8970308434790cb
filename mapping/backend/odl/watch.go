package odl

import (
	"context"
	"time"
)

// Bounds of the time between attempts to connect while watching.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Second
)

// pollShare is which part of the time the comparisons may take.
const pollShare = 20

// fight is how many comparisons in a row have to find something changed for another to be at
// it again and again.
const fight = 4

// What a comparison has found out.
type comparison int

const (
	unknown comparison = iota
	agrees
	differs
)

// Watch keeps a session. It calls changed when the session that a successful Read used
// is no longer the current one, however often the controller came and went in between, and
// when the controller can be reached again; and when what is ours there is not as it was
// read and written. It looks for that itself: OpenDaylight's own notifications come for every
// write of ours too, over a second connection that ends with a restart and is lost in silence,
// and in one dialect only.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	retry, missed, changes := minRetry, false, 0
	poll := time.Now().Add(b.cfg.Poll)
	for ctx.Err() == nil {
		err := b.probe(ctx)
		if b.readEnded(ctx) || missed && err == nil {
			changed()
		}
		missed = err != nil
		if err != nil {
			b.log.Debug("OpenDaylight is out of reach", "err", err)
			pause(ctx, retry)
			retry = min(2*retry, maxRetry)
			continue
		}
		retry = minRetry
		if begun := time.Now(); begun.After(poll) {
			switch b.compare(ctx) {
			case differs:
				changed()
				if changes++; changes == fight {
					b.log.Warn("another hand keeps changing what is the bridge's in OpenDaylight; it is put back each time: see who else writes there")
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
	if b.take(ctx) != nil {
		return false
	}
	defer b.give()
	return b.readSessions.Ended(b.session)
}

// probe sees that the controller is there and ready.
func (b *Backend) probe(ctx context.Context) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	found := b.session == nil // it is ready then
	s, err := b.connected(ctx)
	b.give()
	if err != nil || found {
		return err
	}
	if _, err = s.ready(ctx); ctx.Err() == nil && (err != nil || b.hasBetter(ctx, s)) {
		b.lose(s)
	}
	return err
}

// hasBetter tells whether a controller that was found to speak another dialect speaks
// draft-02 too, which may be there later when it starts.
func (b *Backend) hasBetter(ctx context.Context, s *session) bool {
	if b.cfg.Dialect != "" || s.dialect.name == draft02 {
		return false
	}
	better := &session{client: b.client, cfg: &b.cfg, base: s.base, dialect: dialectOf(draft02)}
	_, err := better.ready(ctx)
	return err == nil
}

// lose leaves a session, unless another has taken its place. The next one is tried with the
// same controller first: with one that is gone that fails at once.
func (b *Backend) lose(s *session) {
	<-b.turn
	defer b.give()
	if b.session == s {
		b.session, b.mirror = nil, nil
	}
}

// compare reads what is ours beside whoever reads and writes, and finds out whether another
// hand has changed it. A reading that fails tells nothing: probe sees to that.
func (b *Backend) compare(ctx context.Context) comparison {
	s, m, then := b.snapshot(ctx)
	if m == nil {
		return unknown
	}
	now, err := s.readAll(ctx)
	if err != nil {
		b.log.Debug("compare with OpenDaylight", "err", err)
		return unknown
	}
	if b.take(ctx) != nil {
		return unknown
	}
	defer b.give()
	if b.mirror != m {
		return unknown // it was read meanwhile
	}
	if !m.agrees(now, then) {
		b.mirror = nil
		return differs
	}
	m.forgetTouched(then)
	return agrees
}

// snapshot returns the session and the mirror, and the mirror's clock.
func (b *Backend) snapshot(ctx context.Context) (*session, *mirror, uint64) {
	if b.take(ctx) != nil {
		return nil, nil, 0
	}
	defer b.give()
	if b.session == nil || b.mirror == nil {
		return nil, nil, 0
	}
	return b.session, b.mirror, b.mirror.clock
}
