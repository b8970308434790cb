package datastore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Get returns the unit of node and key from the mirror, or nil.
func (d *Datastore) Get(node *yang.Node, key ...string) *Unit {
	return d.mirror.get(topOf(node), d.layout.id(node, key))
}

// Tree returns all units of a top container at one revision. The container's own unit comes
// first, then its entries, list by list in the order of their keys. Tree returns nothing if the
// container does not exist.
func (d *Datastore) Tree(top *yang.Node) []*Unit { return d.mirror.tree(top) }

// All returns the units of all top containers at one revision, each in the order of Tree.
func (d *Datastore) All() map[*yang.Node][]*Unit { return d.mirror.all() }

// Tx is one attempt at a transaction: the units that fn read, and the units that it writes. A Tx
// must not be used after fn has returned.
type Tx struct {
	d      *Datastore
	alone  bool               // no other transaction is in the order
	rev    int64              // of the mirror, before the first read
	read   map[string]reading // by id
	put    map[string]*Unit
	delete map[string]*Unit
	clear  map[string]*yang.Node // lists to empty, by the prefixes of their entries' ids
	whole  map[*yang.Node]int64  // the revisions that Changed returned
}

// reading is what a Tx has seen of a unit.
type reading struct {
	top         *yang.Node // of the unit
	modRevision int64      // 0 if the unit did not exist
}

// Update runs fn, which reads and writes through its Tx, and then makes all writes or none. It
// makes them only if all data that fn read with Get and Changed are unchanged in etcd. Otherwise
// fn runs again on the newer state, until ctx ends or the timeout of the datastore is over. When
// Update returns nil, the writes are durable and the mirror shows them. An error of fn is
// returned unchanged.
func (d *Datastore) Update(ctx context.Context, fn func(*Tx) error) error {
	_, err := d.Write(ctx, fn)
	return err
}

// Write is Update, and returns the change that it made. The Change applies to the units that fn
// wrote and to the containers above them. It is zero if fn wrote nothing.
func (d *Datastore) Write(ctx context.Context, fn func(*Tx) error) (Change, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	if change, done, err := d.attempt(ctx, fn); done || err != nil {
		return change, err
	}
	// If several transactions retried at the same time, only one would succeed. So they retry
	// one after the other.
	select {
	case d.retries <- struct{}{}:
		defer func() { <-d.retries }()
	case <-ctx.Done():
		return Change{}, classify("wait for other transactions on the same data", ctx.Err())
	}
	for again := d.attempt; ; {
		if change, done, err := again(ctx, fn); done || err != nil {
			return change, err
		}
		if d.order != nil { // after two failures, further ones are likely: let no other write in
			again = d.attemptAlone
		}
	}
}

// bound limits ctx to the timeout of the datastore.
func (d *Datastore) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d.cfg.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.cfg.Timeout)
}

// attempt runs fn once, and reports whether its writes were made. If not, the mirror has a newer
// revision, or the conflicting transaction has ended.
func (d *Datastore) attempt(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	return d.begin().run(ctx, fn)
}

func (tx *Tx) run(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	if err := fn(tx); err != nil {
		if ctx.Err() == nil && tx.outrun() { // fn may have read units of different revisions
			return Change{}, false, nil
		}
		return Change{}, false, err
	}
	return tx.commit(ctx)
}

func (d *Datastore) begin() *Tx {
	return &Tx{
		d:      d,
		rev:    d.mirror.revision(),
		read:   map[string]reading{},
		put:    map[string]*Unit{},
		delete: map[string]*Unit{},
		clear:  map[string]*yang.Node{},
		whole:  map[*yang.Node]int64{},
	}
}

// Get returns the unit of node and key, or nil. It includes writes of this Tx. The transaction
// fails if the unit changes before it is committed.
func (tx *Tx) Get(node *yang.Node, key ...string) *Unit {
	id := tx.d.layout.id(node, key)
	if u, ok := tx.put[id]; ok {
		return u
	}
	top := topOf(node)
	u := tx.d.mirror.get(top, id)
	if _, seen := tx.read[id]; !seen {
		tx.read[id] = reading{top, revisionOf(u)}
	}
	if tx.gone(id) {
		return nil
	}
	return u
}

func revisionOf(u *Unit) int64 {
	if u == nil {
		return 0
	}
	return u.ModRevision
}

// gone reports whether this Tx deletes id.
func (tx *Tx) gone(id string) bool {
	_, ok := tx.delete[id]
	return ok || tx.cleared(id)
}

func (tx *Tx) cleared(id string) bool {
	for prefix := range tx.clear {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// Tree returns the units of a top container, including writes of this Tx. The transaction does
// not fail if they change before it is committed. A caller that makes a decision from them must
// therefore read and write the container's own unit with Get and Put, and so must every
// transaction that could change the decision.
func (tx *Tx) Tree(top *yang.Node) []*Unit {
	var units []*Unit
	for _, u := range tx.d.mirror.tree(top) {
		if _, ok := tx.put[u.id]; !ok && !tx.gone(u.id) {
			units = append(units, u)
		}
	}
	for _, u := range tx.put {
		if topOf(u.Node) == top {
			units = append(units, u)
		}
	}
	slices.SortFunc(units, func(a, b *Unit) int { return strings.Compare(a.id, b.id) })
	return units
}

// Put writes a unit.
func (tx *Tx) Put(node *yang.Node, key []string, raw []byte) {
	id := tx.d.layout.id(node, key)
	tx.put[id] = &Unit{Node: node, Key: key, Raw: raw, id: id}
	delete(tx.delete, id)
}

// Delete removes a unit, if it exists.
func (tx *Tx) Delete(node *yang.Node, key []string) {
	id := tx.d.layout.id(node, key)
	tx.delete[id] = &Unit{Node: node, Key: key, id: id}
	delete(tx.put, id)
}

// DeleteAll removes every entry of a list, including entries that the mirror does not show yet.
// Entries that are put later in this Tx stay.
func (tx *Tx) DeleteAll(list *yang.Node) {
	prefix := tx.d.layout.id(list, nil) + "="
	tx.clear[prefix] = list
	maps.DeleteFunc(tx.put, func(id string, _ *Unit) bool { return strings.HasPrefix(id, prefix) })
}

// commit makes the writes. It returns false if data that fn read have changed, or may have.
func (tx *Tx) commit(ctx context.Context) (Change, bool, error) {
	ops := tx.ops()
	switch {
	case len(ops) == 0:
		return Change{}, true, nil
	case tx.d.order != nil:
		return tx.commitInOrder(ctx, ops)
	}
	return tx.send(ctx, ops, tx.compares())
}

// send makes the writes in etcd if the comparisons hold, and waits until the mirror shows them.
// If they do not hold, it waits until the mirror shows the conflicting change.
func (tx *Tx) send(ctx context.Context, ops []clientv3.Op, compares []clientv3.Cmp) (Change, bool, error) {
	marks, at := tx.marks(time.Now())
	ops = append(ops, marks...)
	revision, made, err := tx.d.txn(ctx, tx.size(), tx.rev, compares, ops)
	if err != nil {
		if limit := limitError(err, max(len(compares), len(ops)), tx.size()); limit != nil {
			return Change{}, false, limit
		}
		return Change{}, false, classify("write to etcd", err)
	}
	if !made {
		// Data that fn read have changed, so the mirror has a newer revision or will soon have
		// one.
		return Change{}, false, classify("wait for the change of another transaction", tx.d.mirror.reach(ctx, tx.rev+1))
	}
	// Every transaction causes an event, because a deletion also puts a key.
	change := Change{Revision: revision, Time: at}
	return change, true, classify("wait until the write is read", tx.d.mirror.reach(ctx, revision))
}

func (tx *Tx) compares() []clientv3.Cmp {
	cmps := make([]clientv3.Cmp, 0, len(tx.read))
	for id, was := range tx.read {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(configPrefix+id), "=", was.modRevision))
	}
	for top := range tx.whole {
		cmps = append(cmps, tx.unchanged(top)...)
	}
	return cmps
}

func (tx *Tx) ops() []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(tx.put)+len(tx.delete))
	for id, u := range tx.put {
		ops = append(ops, clientv3.OpPut(configPrefix+id, string(u.Raw)))
	}
	for prefix := range tx.clear {
		ops = append(ops, tx.clearOps(prefix)...)
	}
	for id := range tx.delete {
		if !tx.cleared(id) {
			ops = append(ops, clientv3.OpDelete(configPrefix+id))
		}
	}
	return ops
}

// clearOps empties a prefix, except the keys that are put there. Etcd refuses a transaction
// that both deletes and puts one key, so the gaps between the puts are deleted.
func (tx *Tx) clearOps(prefix string) []clientv3.Op {
	var kept []string
	for id := range tx.put {
		if strings.HasPrefix(id, prefix) {
			kept = append(kept, configPrefix+id)
		}
	}
	slices.Sort(kept)
	from, end := configPrefix+prefix, clientv3.GetPrefixRangeEnd(configPrefix+prefix)
	ops := make([]clientv3.Op, 0, len(kept)+1)
	for _, key := range kept {
		if from < key {
			ops = append(ops, clientv3.OpDelete(from, clientv3.WithRange(key)))
		}
		from = key + "\x00"
	}
	return append(ops, clientv3.OpDelete(from, clientv3.WithRange(end)))
}

// size returns the approximate size of the transaction in bytes.
func (tx *Tx) size() int {
	n := 0
	for id, u := range tx.put {
		n += len(id) + len(u.Raw)
	}
	return n
}
