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

// Leadership is held by one process at a time. It ends when it is resigned, when its
// process could not reach etcd for the time of the lease, or when a write of its
// records finds that another process has ended it.
type Leadership struct {
	// Epoch grows with each leader: the create revision of the election key.
	Epoch int64
	// Lost is closed when the leadership is over.
	Lost <-chan struct{}

	d        *Datastore
	session  *concurrency.Session
	election *concurrency.Election
	key      string
	refused  atomic.Bool // a write of records, or Held
	// held is when etcd was asked last that said that the leadership is held.
	held atomic.Pointer[time.Time]
}

// heldShare is for which part of the time of a lease it counts that the leadership was held.
const heldShare = 6

// Held tells by nil that the leadership is held, for writes that can't be compared with the
// election key. etcd is asked, unless it has said so a moment ago: a process that was halted for
// as long as another one needs to be elected asks when it goes on. ErrDeposed says that it is
// held no more, and it is lost then, whatever the lease says.
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
		return classify("ask whether this process leads still", err)
	case !answer.Succeeded:
		l.refused.Store(true)
		l.session.Orphan()
		return fmt.Errorf("ask whether this process leads still: %w", ErrDeposed)
	}
	l.held.Store(&begun)
	return nil
}

// WhyLost says why a leadership is over that was not resigned.
func (l *Leadership) WhyLost() string {
	if l.refused.Load() {
		return "a write was refused: its key is gone from the datastore"
	}
	return "its lease ran out: this process was halted, or the datastore was out of reach"
}

// Campaign waits until this process leads, or ctx ends. It returns
// ErrUnavailable when its place in the queue was lost meanwhile.
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

// campaign waits for this process's turn, for as long as its lease lasts: the place
// of a candidate whose lease ran out has gone, and its turn comes to nobody.
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
		err = fmt.Errorf("the lease ran out before it was this process's turn: %w", ErrUnavailable)
	}
	return err
}

// Leader is the Name of who leads, or empty while nobody does.
func (d *Datastore) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	resp, err := d.client.Get(ctx, electionPrefix+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", classify("ask who leads", err)
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	return string(resp.Kvs[0].Value), nil
}

// session makes a lease that is kept alive until it is closed.
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

// Name tells people, and other processes, this one from others: its host, pid and
// a number of its own.
func (d *Datastore) Name() string { return d.process }

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s pid %d (%04x)", host, os.Getpid(), rand.IntN(1<<16))
}

// CatchUp waits until the mirror shows all that anybody has written before, and
// returns a revision that it shows then: who follows the datastore and has reached
// that knows what a leader before this one knew.
func (d *Datastore) CatchUp(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	for {
		shown := d.mirror.revision()
		if !d.Shared() {
			return shown, nil // nobody else can write, and a write ends when the mirror shows it
		}
		// Whatever deletes puts a mark.
		resp, err := d.client.Get(ctx, configPrefix, clientv3.WithPrefix(), clientv3.WithMinModRev(shown+1), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
		if err != nil {
			return 0, classify("ask what was written", err)
		}
		if len(resp.Kvs) == 0 {
			return shown, nil
		}
		if err := d.mirror.reach(ctx, resp.Kvs[0].ModRevision); err != nil {
			return 0, classify("wait for what was written", err)
		}
	}
}

// Resign gives the leadership up, so that another process has it at once.
func (l *Leadership) Resign(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.d.cfg.Timeout)
	defer cancel()
	err := l.election.Resign(ctx)
	l.session.Orphan()
	_, revoked := l.d.client.Revoke(ctx, l.session.Lease())
	return classify("resign leadership", errors.Join(err, revoked))
}

// forgetElections removes what an earlier run left behind. Only for the embedded
// etcd, whose directory is locked: who held those keys is dead, and nobody need
// wait for its lease to run out.
func (d *Datastore) forgetElections(ctx context.Context) error {
	_, err := d.client.Delete(ctx, electionPrefix+"/", clientv3.WithPrefix())
	return classify("forget the last leader", err)
}
