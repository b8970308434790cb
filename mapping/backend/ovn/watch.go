package ovn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// Watch keeps a connection open. It calls changed when the session that a successful
// Read used is not the current one any more: the server is gone, another server has
// answered since, NB_Global was deleted, or it names another writer. It compares the two
// sessions, so it misses no reconnection. It also calls changed when the server is
// reachable again, so that the caller can read at once. It returns when ctx ends, and
// with ErrDeposed.
func (b *Backend) Watch(ctx context.Context, changed func()) error {
	retry := servers.MinRetry
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
			b.log.Debug("cannot reach the northbound database", "err", err)
			pause(ctx, retry)
			retry = min(2*retry, servers.MaxRetry)
		default:
			retry = servers.MinRetry
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
	if err := b.acquireProbing(ctx); err != nil {
		return nil, false, err
	}
	defer b.release()
	s, err = b.connected(ctx)
	return s, b.readSessions.Ended(s), err
}

// acquireProbing is acquire. Meanwhile it observes the server that the call which has the lock waits for: that call has a later timeout.
func (b *Backend) acquireProbing(ctx context.Context) error {
	ticker := time.NewTicker(b.cfg.Probe)
	defer ticker.Stop()
	for {
		select {
		case <-b.lock:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if s := b.session.Load(); s != nil {
				b.leaveHung(ctx, s)
			}
		}
	}
}

// observe returns when ctx has ended or the session is lost. It marks a session as lost
// whose connection has ended or whose server does not answer or is not the leader any more.
func (b *Backend) observe(ctx context.Context, s *session) {
	ticker := time.NewTicker(b.cfg.Probe)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			return
		case <-s.conn.Ended():
			s.lose()
			return
		case <-s.server.Ended():
			s.lose()
			return
		case <-s.client.DisconnectNotify():
			s.lose()
			return
		case <-ticker.C:
			if b.leaveHung(ctx, s) {
				return
			}
		}
	}
}

// leaveHung marks a session as lost if its server does not answer in time, or is not the leader any more. It reports whether the session is lost.
func (b *Backend) leaveHung(ctx context.Context, s *session) bool {
	select {
	case <-s.lost:
		return true
	default:
	}
	err := b.probe(ctx, s)
	if err == nil || ctx.Err() != nil {
		return false
	}
	b.log.Info("leaving this server of the northbound database", "endpoint", s.server.Endpoint, "err", err)
	s.lose()
	return true
}

// probe checks that the server answers in time, and still has its role.
//
// The leader option of libovsdb is not used: it leaves a goroutine behind with each connection, waits for an
// answer without a deadline, and misses a change of the leader while it connects.
func (b *Backend) probe(ctx context.Context, s *session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var limit sync.WaitGroup
	limit.Go(func() {
		begun := time.Now() // of the probe, or of the time without large calls
		for left := b.patience(s); left > 0; left = b.patience(s) - time.Since(begun) {
			busy := s.large.Load() > 0
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(left, servers.HungAfter)): // a call can have ended
			}
			if busy && s.large.Load() == 0 {
				begun = time.Now() // the server may answer from now on
			}
		}
		cancel(context.DeadlineExceeded)
	})
	defer limit.Wait()
	defer cancel(nil)
	return s.server.Probe(ctx)
}

// patience returns how long the server may take to answer a probe: a server answers nothing while it makes a large transaction. It is
// longer than such calls of this session in progress, which may have begun after the probe.
func (b *Backend) patience(s *session) time.Duration {
	if more := s.large.Load(); more > 0 {
		return b.cfg.Timeout * time.Duration(2+more)
	}
	return b.servers.Patience()
}

// connected returns the session, or opens one if there is none or it has ended. It tries
// the endpoints in turn, from b.next on. The caller holds the lock.
func (b *Backend) connected(ctx context.Context) (*session, error) {
	if s := b.session.Load(); s != nil && s.over() {
		b.discard()
	}
	if s := b.session.Load(); s != nil {
		return s, nil
	}
	var failures []error
	for range b.servers.Endpoints {
		s, err := b.dial(ctx, b.servers.Endpoints[b.next])
		if err == nil {
			b.session.Store(s)
			b.log.Info("connected to the northbound database", "endpoint", b.servers.Endpoints[b.next])
			return s, nil
		}
		failures = append(failures, err)
		b.next = (b.next + 1) % len(b.servers.Endpoints)
		if ctx.Err() != nil {
			failures = append(failures, ctx.Err())
			break
		}
	}
	return nil, errors.Join(failures...)
}

func (b *Backend) dial(ctx context.Context, endpoint string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.servers.OpenTimeout())
	defer cancel()
	role := servers.Leader
	if len(b.servers.Endpoints) == 1 {
		role = servers.Connected // a single server has no other member to try
	}
	return dial(ctx, b.servers, endpoint, role, &b.cfg)
}

// discard closes the session; the next one is tried at the next endpoint. The caller
// holds the lock.
func (b *Backend) discard() {
	s := b.session.Swap(nil)
	if s == nil {
		return
	}
	s.lose()
	s.close()
	b.next = (b.next + 1) % len(b.servers.Endpoints)
}
