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
//	plain      writes entries of lists, and has read only entries and containers. It locks
//	           its entries until it ends. Several plain transactions run at the same time,
//	           and none of them writes a container.
//	any other  runs alone.
//
// So no other transaction changes the data of a plain transaction while it runs. The mirror
// reports whether the data changed before. A plain transaction therefore needs no comparison
// in etcd; the other transactions compare.
//
// This is correct while the results of all transactions are known. After a failure, etcd may
// still make the transaction, though before any later one. Then all transactions run alone
// until one is made and the mirror shows its revision.
type txOrder struct {
	places *semaphore.Weighted // a plain transaction takes one, any other takes all
	doubt  atomic.Bool         // the result of a transaction is unknown; a transaction that runs alone clears it

	mu     sync.Mutex
	locked map[string]chan struct{} // entries by id; closed when they are unlocked
}

const allPlaces = math.MaxInt64

func newTxOrder() *txOrder {
	return &txOrder{places: semaphore.NewWeighted(allPlaces), locked: map[string]chan struct{}{}}
}

// lock locks all the entries. If another transaction has locked an entry, it locks none, and
// returns a channel that is closed when that entry is unlocked.
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
	return classify("wait for other writes to end", t.places.Acquire(ctx, allPlaces))
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

// entries returns the entries that a plain transaction reads or writes. plain is false if the
// transaction is not plain.
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

// isEntry reports whether an id is the id of an entry, not of a container.
func isEntry(id string) bool { return strings.IndexByte(id, '=') >= 0 }

// sendPlain sends a plain transaction without comparisons. Others may run at the same time.
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
			return Change{}, false, classify("wait for other transactions on the same data", ctx.Err())
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

// sendAlone sends a transaction that has all places, with comparisons.
func (tx *Tx) sendAlone(ctx context.Context, ops []clientv3.Op) (Change, bool, error) {
	change, done, err := tx.send(ctx, ops, tx.compares())
	if done || err != nil {
		tx.d.order.doubt.Store(err != nil)
	}
	return change, done, err
}
