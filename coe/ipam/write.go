package ipam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// The order in which the changes of a write reach the journal, if they do not fit into one
// transaction. A record is written after the records that it needs, and deleted before them. So
// the journal can be loaded even if only the first transactions of a write were made.
const (
	rankAdopting = iota
	rankInstance
	rankBlock
	rankFormer
	rankLease
	rankDeleteLease
	rankDeleteBlock
	rankDeleteInstance
)

// change is a record to write, and the change of the store that follows.
type change struct {
	rank  int
	value any // nil deletes
	tell  func(*coe.Tx)
}

// write collects changes. A later change of a key replaces an earlier one.
type write struct {
	changes map[string]change
	deletes bool
}

func newWrite() *write { return &write{changes: map[string]change{}} }

func (w *write) put(rank int, key string, value any, tell func(*coe.Tx)) {
	w.changes[key] = change{rank, value, tell}
}

func (w *write) remove(rank int, key string, tell func(*coe.Tx)) {
	w.changes[key] = change{rank, nil, tell}
	w.deletes = true
}

// keys returns the keys of the changes in the order of writing.
func (w *write) keys() []string {
	return slices.SortedFunc(maps.Keys(w.changes), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.changes[a].rank, w.changes[b].rank), cmp.Compare(a, b))
	})
}

// maxOps limits the records of one transaction. On a busy machine etcd gives up a transaction of 90,000 after its 7 s, and all would be
// tried again.
const maxOps = 10_000

// commit writes all changes to the journal, in as few transactions as possible.
func (w *write) commit(ctx context.Context, j Journal) error {
	for keys := range slices.Chunk(w.keys(), max(min(j.MaxOps(), maxOps), 1)) {
		puts := make(map[string][]byte, len(keys))
		var deletes []string
		for _, k := range keys {
			if w.changes[k].value == nil {
				deletes = append(deletes, k)
				continue
			}
			value, err := json.Marshal(w.changes[k].value)
			if err != nil {
				return fmt.Errorf("encode record %q: %w", k, err)
			}
			puts[k] = value
		}
		if err := j.Commit(ctx, puts, deletes); err != nil {
			return fmt.Errorf("write %d records to the journal: %w", len(keys), err)
		}
	}
	return nil
}

// tell applies all changes to the store, in the order of writing.
func (w *write) tell(tx *coe.Tx) {
	for _, k := range w.keys() {
		if tell := w.changes[k].tell; tell != nil {
			tell(tx)
		}
	}
}

// flush writes the collected changes to the journal, and then to the store. With refusals, it
// puts these into the store too.
func (r *round) flush(ctx context.Context, refusals bool) error {
	if len(r.write.changes) > 0 {
		if err := r.write.commit(ctx, r.journal); err != nil {
			return err
		}
	}
	repaired := r.clearDamage()
	var changed map[string]*refused
	if refusals {
		changed = r.changedRefusals()
	}
	if len(r.write.changes) > 0 || len(changed) > 0 {
		r.store.Update(func(tx *coe.Tx) {
			r.write.tell(tx)
			if repaired {
				tx.SetDamaged(r.damaged.problems())
			}
			for ns, refused := range changed {
				tx.SetRefusals(ns, refused.leases, refused.services)
			}
		})
	}
	r.write = newWrite()
	return nil
}

// putLease creates or replaces a lease.
func (r *round) putLease(l *coe.Lease) {
	old := r.leases[l.Key()]
	if old != nil {
		r.drop(old)
		r.touched[old.Namespace] = true
	}
	r.add(l)
	r.rests.note(leaseRecord(l.Key()), l.Released)
	r.dropContested(l.Key())
	r.touched[l.Namespace] = true
	r.write.put(rankLease, leaseRecord(l.Key()), l, func(tx *coe.Tx) {
		if old != nil && old.Namespace != l.Namespace {
			tx.DeleteLease(old.Namespace, l.Key())
		}
		tx.PutLease(l)
	})
}

func (r *round) deleteLease(l *coe.Lease) {
	r.drop(l)
	r.rests.note(leaseRecord(l.Key()), 0)
	r.write.remove(rankDeleteLease, leaseRecord(l.Key()), func(tx *coe.Tx) { tx.DeleteLease(l.Namespace, l.Key()) })
}

func (r *round) deleteFormer(f *former) {
	r.dropFormer(f)
	r.write.remove(rankDeleteLease, formerRecord(f), func(tx *coe.Tx) { tx.DeleteFormer(f.name()) })
}

func (r *round) putService(s *coe.ServiceFact) {
	old := r.services[s.UID]
	if old != nil {
		r.dropService(old)
		r.touched[old.Namespace] = true
	}
	r.addService(s)
	r.rests.note(serviceRecord(s.UID), s.Released)
	r.write.put(rankLease, serviceRecord(s.UID), s, func(tx *coe.Tx) {
		if old != nil && old.Namespace != s.Namespace {
			tx.DeleteServiceFact(old.Namespace, s.UID)
		}
		tx.PutServiceFact(s)
	})
}

func (r *round) deleteService(s *coe.ServiceFact) {
	r.dropService(s)
	r.rests.note(serviceRecord(s.UID), 0)
	r.write.remove(rankDeleteLease, serviceRecord(s.UID), func(tx *coe.Tx) { tx.DeleteServiceFact(s.Namespace, s.UID) })
}

func (r *round) putBlock(b blockFact) {
	key := blockKey{b.ELAN, b.Prefix}
	r.addBlock(b)
	r.touched[b.namespace] = true
	r.write.put(rankBlock, blockRecord(key), b.Block, func(tx *coe.Tx) { tx.PutBlock(b.namespace, b.Block) })
}

func (r *round) deleteBlock(b blockFact) {
	key := blockKey{b.ELAN, b.Prefix}
	r.dropBlock(b)
	r.touched[b.namespace] = true
	r.write.remove(rankDeleteBlock, blockRecord(key), func(tx *coe.Tx) { tx.DeleteBlock(b.namespace, b.ELAN, b.Prefix) })
}
