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

// txOrder orders the transactions of an embedded etcd, which only this process writes.
// There are two kinds:
//
//	plain      writes entries of lists, and relies on entries and containers only. It locks
//	           its entries until it ends. Other plain transactions run beside it, and none
//	           of them writes a container.
//	any other  runs alone.
//
// So nothing changes what a plain transaction has read while it runs, and the mirror
// reports whether anything has changed before: etcd need not compare. For the others it
// compares.
//
// This holds as long as the result of all transactions is known. After a failure, etcd may
// still make the transaction, though before any later one. Then all transactions run alone
// until one is made and the mirror shows its revision.
type txOrder struct {
	places *semaphore.Weighted // a plain transaction has one, any other all
	doubt  atomic.Bool         // the result of one is unknown; cleared by one that runs alone

	mu     sync.Mutex
	locked map[string]chan struct{} // entries by id; closed when they are unlocked
}

const allPlaces = math.MaxInt64

func newTxOrder() *txOrder {
	return &txOrder{places: semaphore.NewWeighted(allPlaces), locked: map[string]chan struct{}{}}
}

// lock locks entries, or none if one of them is locked. Then it returns a channel that is
// closed when that one is unlocked.
func (t *txOrder) lock(ids []string) (busy <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if until, taken := t.locked[id]; taken {
			return until
		}
	}
	until := make(chan struct{})
	for _, id := range ids {
		t.locked[id] = until
	}
	return nil
}

// unlock unlocks entries that lock has locked.
func (t *txOrder) unlock(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, id := range ids {
		if i == 0 {
			close(t.locked[id])
		}
		delete(t.locked, id)
	}
}

// attemptAlone is attempt while no other transaction runs: nothing that fn reads changes.
func (d *Datastore) attemptAlone(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	if err := d.order.lockAll(ctx); err != nil {
		return Change{}, false, err
	}
	defer d.order.places.Release(allPlaces)
	tx := d.begin()
	tx.alone = true
	return tx.run(ctx, fn)
}

// lockAll waits until no transaction runs.
func (t *txOrder) lockAll(ctx context.Context) error {
	return classify("wait for writes that are under way", t.places.Acquire(ctx, allPlaces))
}

// commitInOrder is send for a datastore that only this process writes.
func (tx *Tx) commitInOrder(ctx context.Context, ops []clientv3.Op) (Change, bool, error) {
	if tx.alone {
		return tx.sendAlone(ctx, ops)
	}
	if entries, plain := tx.entries(); plain && !tx.d.order.doubt.Load() {
		return tx.sendPlain(ctx, ops, entries)
	}
	if err := tx.d.order.lockAll(ctx); err != nil {
		return Change{}, false, err
	}
	defer tx.d.order.places.Release(allPlaces)
	return tx.sendAlone(ctx, ops)
}

// entries are the entries that a plain transaction reads or writes; plain is false for any
// other.
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
	t := tx.d.order
	if err := t.places.Acquire(ctx, 1); err != nil {
		return Change{}, false, classify("wait for a write that is made alone", err)
	}
	defer t.places.Release(1)
	if busy := t.lock(entries); busy != nil {
		select {
		case <-busy:
			return Change{}, false, nil
		case <-ctx.Done():
			return Change{}, false, classify("wait for others who change the same", ctx.Err())
		}
	}
	defer t.unlock(entries)
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
		tx.d.order.doubt.Store(err != nil)
	}
	return change, done, err
}
