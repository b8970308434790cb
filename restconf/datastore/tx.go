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

// Get is the unit of node and key as the mirror has it, or nil.
func (d *Datastore) Get(node *yang.Node, key ...string) *Unit {
	return d.mirror.get(topOf(node), d.layout.id(node, key))
}

// Tree are all units of a top container at one revision: the container's own
// first, then its entries, list by list in the order of their keys. It is empty
// when the container does not exist.
func (d *Datastore) Tree(top *yang.Node) []*Unit { return d.mirror.tree(top) }

// All are the units of all top containers at one revision, each as Tree has them.
func (d *Datastore) All() map[*yang.Node][]*Unit { return d.mirror.all() }

// Tx is one attempt at a change: what fn read, and what it wants written. It is
// good only within the call that it was made for.
type Tx struct {
	d      *Datastore
	alone  bool               // it has all places of the order
	rev    int64              // the mirror's, before anything was read
	read   map[string]reading // by id
	put    map[string]*Unit
	delete map[string]*Unit
	clear  map[string]*yang.Node // lists to be emptied, by the prefixes of their entries' ids
	whole  map[*yang.Node]int64  // the revisions of what Changed told of
}

// reading is what a Tx has seen of a unit.
type reading struct {
	top         *yang.Node // that it is in
	modRevision int64      // 0: it was not there
}

// Update runs fn, which reads and writes through its Tx, and then makes all
// writes or none. They are made only if everything that fn read with Get and
// Changed is unchanged in etcd; otherwise fn runs again on the newer state, until
// ctx or the datastore's timeout ends it. When Update returns nil, the writes are
// durable and the mirror shows them. An error of fn is returned as it is.
func (d *Datastore) Update(ctx context.Context, fn func(*Tx) error) error {
	_, err := d.Write(ctx, fn)
	return err
}

// Write is Update, and tells the change that it made: that of everything that fn
// wrote and of what holds it. It is zero where fn wrote nothing.
func (d *Datastore) Write(ctx context.Context, fn func(*Tx) error) (Change, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	if change, done, err := d.attempt(ctx, fn); done || err != nil {
		return change, err
	}
	// If the losers tried again side by side, all but one would lose again. So they try
	// one after the other.
	select {
	case d.retries <- struct{}{}:
		defer func() { <-d.retries }()
	case <-ctx.Done():
		return Change{}, classify("wait for others who change the same", ctx.Err())
	}
	for again := d.attempt; ; {
		if change, done, err := again(ctx, fn); done || err != nil {
			return change, err
		}
		if d.order != nil { // a write that has lost twice could lose to many others for long
			again = d.attemptAlone
		}
	}
}

// bound has ctx end after the datastore's timeout, if not before.
func (d *Datastore) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d.cfg.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d.cfg.Timeout)
}

// attempt runs fn once, and reports whether its writes were made. If not, the mirror has
// moved on, or the transaction that was in the way has ended.
func (d *Datastore) attempt(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	return d.begin().run(ctx, fn)
}

func (tx *Tx) run(ctx context.Context, fn func(*Tx) error) (Change, bool, error) {
	if err := fn(tx); err != nil {
		if ctx.Err() == nil && tx.outrun() { // fn saw some of what came before and some of what came after
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

// Get is the unit of node and key, with what this Tx has written, or nil. The
// transaction relies on it.
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

// Tree are the units of a top container as they will be. The transaction does
// not rely on them: whoever decides by them also reads and writes the
// container's own unit, and so do all whose changes could turn the decision.
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

// Delete removes a unit, if it is there.
func (tx *Tx) Delete(node *yang.Node, key []string) {
	id := tx.d.layout.id(node, key)
	tx.delete[id] = &Unit{Node: node, Key: key, id: id}
	delete(tx.put, id)
}

// DeleteAll removes every entry of a list, those included that the mirror does
// not show yet. Entries that are put later in this Tx stay.
func (tx *Tx) DeleteAll(list *yang.Node) {
	prefix := tx.d.layout.id(list, nil) + "="
	tx.clear[prefix] = list
	maps.DeleteFunc(tx.put, func(id string, _ *Unit) bool { return strings.HasPrefix(id, prefix) })
}

// commit makes the writes. It returns false when what was read has changed, or may have.
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

// send has etcd make the writes if what is compared is so, and waits until the mirror
// shows them, or else what has changed.
func (tx *Tx) send(ctx context.Context, ops []clientv3.Op, compares []clientv3.Cmp) (Change, bool, error) {
	marks, at := tx.marks(time.Now())
	ops = append(ops, marks...)
	revision, made, err := tx.d.txn(ctx, tx.size(), compares, ops)
	if err != nil {
		if limit := limitError(err, max(len(compares), len(ops)), tx.size()); limit != nil {
			return Change{}, false, limit
		}
		return Change{}, false, classify("write to etcd", err)
	}
	if !made {
		// Something that was read has changed since, so the mirror has a newer
		// revision or is about to.
		return Change{}, false, classify("wait for a change of others", tx.d.mirror.reach(ctx, tx.rev+1))
	}
	// There is an event to wait for: whoever deletes puts a mark.
	change := Change{Revision: revision, Time: at}
	return change, true, classify("see what was written", tx.d.mirror.reach(ctx, revision))
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

// size is about what the transaction has in bytes.
func (tx *Tx) size() int {
	n := 0
	for id, u := range tx.put {
		n += len(id) + len(u.Raw)
	}
	return n
}
