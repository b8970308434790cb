package datastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Leadership is held by one process at a time. It ends when the process resigns, when the process
// could not reach etcd for LeaseTTL, or when etcd refuses one of its writes of records because
// the election key is deleted.
type Leadership struct {
	// Epoch grows with each leader: the create revision of the election key.
	Epoch int64
	// Lost is closed when the leadership is over.
	Lost <-chan struct{}

	d        *Datastore
	session  *concurrency.Session
	election *concurrency.Election
	key      string
	refused  atomic.Bool // set by a refused write of records, and by Held
	// held is the start of the last request to etcd that confirmed the leadership.
	held atomic.Pointer[time.Time]
}

// heldShare divides LeaseTTL: Held trusts an answer of etcd for LeaseTTL/heldShare.
const heldShare = 6

// Held returns nil if this process is still the leader. It is for writes to a backend that cannot
// compare the election key. Held asks etcd, unless etcd has confirmed the leadership less than
// LeaseTTL/heldShare ago. This is shorter than an election takes, so a process that was halted
// during an election always asks. ErrDeposed means that another process may lead; the leadership
// is then lost, even if the lease is still valid.
func (l *Leadership) Held(ctx context.Context) error {
	if at := l.held.Load(); at != nil && time.Since(*at) < l.d.cfg.LeaseTTL/heldShare {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.d.cfg.Timeout)
	defer cancel()
	begun := time.Now()
	answer, err := l.d.client.Txn(ctx).If(l.holds()).Commit()
	switch {
	case err != nil:
		return classify("check that this process is still the leader", err)
	case !answer.Succeeded:
		l.refused.Store(true)
		l.session.Orphan()
		return fmt.Errorf("check that this process is still the leader: %w", ErrDeposed)
	}
	l.held.Store(&begun)
	return nil
}

// WhyLost returns the reason why a leadership has ended that was not resigned.
func (l *Leadership) WhyLost() string {
	if l.refused.Load() {
		return "a write was refused: the election key is deleted from the datastore"
	}
	return "the lease has expired: this process was halted, or the datastore was unreachable"
}

// Campaign waits until this process leads, or ctx ends. It returns ErrUnavailable if the lease of
// the candidate has expired meanwhile.
func (d *Datastore) Campaign(ctx context.Context) (*Leadership, error) {
	session, err := d.session(ctx)
	if err != nil {
		return nil, err
	}
	l := &Leadership{Lost: session.Done(), d: d, session: session, election: concurrency.NewElection(session, electionPrefix)}
	if err := l.campaign(ctx); err != nil {
		return nil, errors.Join(classify("campaign for leadership", err), session.Close())
	}
	return l, nil
}

// campaign waits until this process is elected or its lease expires. A candidate without a lease
// is never elected.
func (l *Leadership) campaign(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.session.Ctx(), cancel)()
	if err := l.election.Campaign(ctx, l.d.process); err != nil {
		return err
	}
	l.Epoch, l.key = l.election.Rev(), l.election.Key()
	reached := l.d.mirror.revision()
	held, err := l.d.client.Txn(ctx).If(l.holds()).Commit()
	if err == nil {
		err = l.d.verifyRevision(reached, held.Header.Revision)
	}
	if err == nil && !held.Succeeded {
		err = fmt.Errorf("the lease expired before this process was elected: %w", ErrUnavailable)
	}
	return err
}

// Leader returns the Name of the leader, or empty if there is no leader.
func (d *Datastore) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	resp, err := d.client.Get(ctx, electionPrefix+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", classify("read the name of the leader", err)
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	return string(resp.Kvs[0].Value), nil
}

// session creates a lease. It is kept alive until the session is closed.
func (d *Datastore) session(ctx context.Context) (*concurrency.Session, error) {
	ttl := int(math.Ceil(d.cfg.LeaseTTL.Seconds()))
	grant, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	lease, err := d.client.Grant(grant, int64(ttl))
	if err != nil {
		return nil, classify("get a lease", err)
	}
	session, err := concurrency.NewSession(d.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(ttl))
	if err != nil {
		return nil, classify("keep a lease alive", err)
	}
	return session, nil
}

// Name identifies this process: its host, its PID and a random number.
func (d *Datastore) Name() string { return d.process }

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d (%04x)", host, os.Getpid(), rand.IntN(1<<16))
}

// CatchUp waits until the mirror shows every write that was made before the call, and returns the
// revision of the mirror. A follower of the datastore that has reached this revision knows all
// that an earlier leader knew.
func (d *Datastore) CatchUp(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	for {
		shown := d.mirror.revision()
		if !d.Shared() {
			return shown, nil // only this process writes, and its writes return when the mirror shows them
		}
		// A deletion also puts a key, so a search for puts finds it.
		resp, err := d.client.Get(ctx, configPrefix, clientv3.WithPrefix(), clientv3.WithMinModRev(shown+1), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return 0, classify("look for later writes", err)
		}
		if len(resp.Kvs) == 0 {
			return shown, nil
		}
		if err := d.mirror.reach(ctx, resp.Kvs[0].ModRevision); err != nil {
			return 0, classify("wait until later writes are read", err)
		}
	}
}

// Resign ends the leadership, so that another process is elected at once.
func (l *Leadership) Resign(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.d.cfg.Timeout)
	defer cancel()
	err := l.election.Resign(ctx)
	l.session.Orphan()
	_, revoked := l.d.client.Revoke(ctx, l.session.Lease())
	return classify("resign leadership", errors.Join(err, revoked))
}

// forgetElections deletes the election keys of an earlier run, so that this process does not wait
// until their leases expire. It is only for the embedded etcd: its directory is locked, so the
// processes that created the keys have ended.
func (d *Datastore) forgetElections(ctx context.Context) error {
	_, err := d.client.Delete(ctx, electionPrefix+"/", clientv3.WithPrefix())
	return classify("forget the last leader", err)
}
