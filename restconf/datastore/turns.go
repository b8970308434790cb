package datastore

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
)

// turns order the transactions of an embedded etcd, to whose tree this process alone
// writes. There are two kinds:
//
//	plain      writes entries of lists, and relies on nothing but entries and containers.
//	           The entries it has to itself until it ends; other plain ones are under way
//	           meanwhile, and none of them writes a container.
//	any other  is under way alone.
//
// So nothing changes what a plain one has read while it is under way, and the mirror
// tells whether anything has before: etcd need not compare. Of the others it does.
//
// This holds as long as it is known what became of all that was sent. Where one has
// failed, etcd may still make it, though before all that is sent after: then all are
// sent alone until one is made, whose revision the mirror shows.
type turns struct {
	places *semaphore.Weighted // a plain transaction has one, any other all
	doubt  atomic.Bool         // it is not known what became of one; cleared by one that has all places

	mu    sync.Mutex
	taken map[string]chan struct{} // entries by id; closed when they are given back
}

const allPlaces = math.MaxInt64

func newTurns() *turns {
	return &turns{places: semaphore.NewWeighted(allPlaces), taken: map[string]chan struct{}{}}
}

// take takes entries, or none where one of them is taken: then it returns what is closed
// when that is given back.
func (t *turns) take(ids []string) (busy <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if until, taken := t.taken[id]; taken {
			return until
		}
	}
	until := make(chan struct{})
	for _, id := range ids {
		t.taken[id] = until
	}
	return nil
}

// giveBack gives back what take has taken.
func (t *turns) giveBack(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range ids {
		if i == 0 {
			close(t.taken[id])
		}
		delete(t.taken, id)
	}
}

// attemptAlone is attempt while nothing else is under way: what fn reads stays so.
func (d *Datastore) attemptAlone(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	if err := d.turns.takeAll(ctx); err != nil {
		return Change{}, false, err
	}
	defer d.turns.places.Release(allPlaces)
	tx := d.begin()
	tx.alone = true
	return tx.run(ctx, fn)
}

// takeAll waits until nothing is under way.
func (t *turns) takeAll(ctx context.Context) error {
	return classify("wait for writes that are under way", t.places.Acquire(ctx, allPlaces))
}

// inTurn is send where this process alone writes.
func (tx *Tx) inTurn(ctx context.Context, ops []clientv3.Op) (Change, bool, error) {
	if tx.alone {
		return tx.sendAlone(ctx, ops)
	}
	if entries, plain := tx.entries(); plain && !tx.d.turns.doubt.Load() {
		return tx.sendPlain(ctx, ops, entries)
	}
	if err := tx.d.turns.takeAll(ctx); err != nil {
		return Change{}, false, err
	}
	defer tx.d.turns.places.Release(allPlaces)
	return tx.sendAlone(ctx, ops)
}

// entries are those that the transaction reads or writes; plain is false where it is none.
func (tx *Tx) entries() (ids []string, plain bool) {
	if len(tx.clear) > 0 || len(tx.whole) > 0 {
		return nil, false
	}
	for _, written := range []map[string]*Unit{tx.put, tx.delete} {
		for id := range written {
			if !isEntry(id) {
				return nil, false
			}
			ids = append(ids, id)
		}
	}
	for id := range tx.read {
		if isEntry(id) && tx.put[id] == nil && tx.delete[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids, true
}

// isEntry tells an entry's id from a container's.
func isEntry(id string) bool { return strings.IndexByte(id, '=') >= 0 }

// sendPlain sends a plain transaction beside others, without comparing.
func (tx *Tx) sendPlain(ctx context.Context, ops []clientv3.Op, entries []string) (Change, bool, error) {
	t := tx.d.turns
	if err := t.places.Acquire(ctx, 1); err != nil {
		return Change{}, false, classify("wait for a write that is made alone", err)
	}
	defer t.places.Release(1)
	if busy := t.take(entries); busy != nil {
		select {
		case <-busy:
			return Change{}, false, nil
		case <-ctx.Done():
			return Change{}, false, classify("wait for others who change the same", ctx.Err())
		}
	}
	defer t.giveBack(entries)
	if t.doubt.Load() || tx.outrun() {
		return Change{}, false, nil
	}
	change, done, err := tx.send(ctx, ops, nil)
	if err != nil {
		t.doubt.Store(true)
	}
	return change, done, err
}

// sendAlone sends a transaction that has all places, and has etcd compare.
func (tx *Tx) sendAlone(ctx context.Context, ops []clientv3.Op) (Change, bool, error) {
	change, done, err := tx.send(ctx, ops, tx.compares())
	if done || err != nil {
		tx.d.turns.doubt.Store(err != nil)
	}
	return change, done, err
}
