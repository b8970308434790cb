package ovn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// Bounds of the time between attempts to connect while watching.
const (
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

// Watch keeps a connection. It calls changed when the session that a successful
// Read used is no longer the current one: the server is gone, another one answered since,
// NB_Global was lost, or it names another writer. It compares the two sessions each time
// that it looks, so it does not matter how often the connection came and went in between.
// It also calls changed when the server is reachable again, so that the caller can read at
// once. It ends with ctx, or with ErrDeposed.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	retry := minRetry
	missed := false
	for {
		s, ended, err := b.watched(ctx)
		if ended || missed && err == nil {
			changed()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		missed = err != nil
		switch {
		case errors.Is(err, ErrDeposed):
			return fmt.Errorf("watch northbound database: %w", err)
		case err != nil:
			b.log.Debug("northbound database is out of reach", "err", err)
			pause(ctx, retry)
			retry = min(2*retry, maxRetry)
		default:
			retry = minRetry
			b.observe(ctx, s)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watched returns the session, opening one if there is none. It reports once whether the
// session that a Read used has ended.
func (b *Backend) watched(ctx context.Context) (s *session, ended bool, err error) {
	if err := b.take(ctx); err != nil {
		return nil, false, err
	}
	defer b.give()
	s, err = b.connected(ctx)
	return s, b.readSessions.Ended(s), err
}

// observe returns when the session has ended or should: then it is marked lost.
func (b *Backend) observe(ctx context.Context, s *session) {
	ticker := time.NewTicker(b.cfg.Probe)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			return
		case <-s.conn.ended:
			s.lose()
			return
		case <-s.client.DisconnectNotify():
			s.lose()
			return
		case <-ticker.C:
			if err := b.probe(ctx, s); err != nil && ctx.Err() == nil {
				b.log.Debug("northbound database does not answer", "err", err)
				s.lose()
				return
			}
		}
	}
}

// probe asks the server for a sign of life. It does so by a transaction: the
// client's Echo reads an answer that comes too late while it is being written.
func (b *Backend) probe(ctx context.Context, s *session) error {
	ctx, cancel := b.timed(ctx)
	defer cancel()
	_, err := s.call(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: nb.NBGlobalTable, Columns: []string{"_uuid"}})
	return err
}

// connected returns the session if it is good, else a new one: of the endpoint
// that served last, or the first of the others that answers. Who calls it has
// the turn.
func (b *Backend) connected(ctx context.Context) (*session, error) {
	if b.session != nil && b.session.over() {
		b.discard()
	}
	if b.session != nil {
		return b.session, nil
	}
	var failures []error
	for range b.endpoints {
		s, err := b.dial(ctx, b.endpoints[b.next])
		if err == nil {
			b.session = s
			b.log.Info("connected to the northbound database", "endpoint", b.endpoints[b.next])
			return s, nil
		}
		failures = append(failures, err)
		b.next = (b.next + 1) % len(b.endpoints)
		if ctx.Err() != nil {
			failures = append(failures, ctx.Err())
			break
		}
	}
	return nil, errors.Join(failures...)
}

func (b *Backend) dial(ctx context.Context, endpoint string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	return dial(ctx, endpoint, &b.cfg)
}

// discard leaves the session; the next is tried at the next endpoint. Who calls
// it has the turn.
func (b *Backend) discard() {
	if b.session == nil {
		return
	}
	b.session.lose()
	b.session.close()
	b.session = nil
	b.next = (b.next + 1) % len(b.endpoints)
}
