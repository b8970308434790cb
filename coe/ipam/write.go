package ipam

import (
	"context"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// flush writes the collected changes to the journal, and then to the store. With refusals, it
// puts these into the store too.
func (r *round) flush(ctx context.Context, refusals bool) error {
	if !r.write.Empty() {
		if err := r.write.Commit(ctx, r.journal); err != nil {
			return err
		}
	}
	repaired := r.clearDamage()
	var changed map[string]*refused
	if refusals {
		changed = r.changedRefusals()
	}
	if !r.write.Empty() || len(changed) > 0 {
		r.store.Update(func(tx *state.Tx) {
			r.write.Tell(tx)
			if repaired {
				tx.SetDamaged(r.damaged.Problems())
			}
			for ns, refused := range changed {
				tx.SetRefusals(ns, refused.leases, refused.services)
			}
		})
	}
	r.write = journal.NewWrite()
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
	r.rests.note(journal.LeaseRecord(l.Key()), l.Released)
	r.dropContested(l.Key())
	r.touched[l.Namespace] = true
	r.write.Put(journal.RankLease, journal.LeaseRecord(l.Key()), l, func(tx *state.Tx) {
		if old != nil && old.Namespace != l.Namespace {
			tx.DeleteLease(old.Namespace, l.Key())
		}
		tx.PutLease(l)
	})
}

func (r *round) deleteLease(l *coe.Lease) {
	r.drop(l)
	r.rests.note(journal.LeaseRecord(l.Key()), 0)
	r.write.Remove(journal.RankDeleteLease, journal.LeaseRecord(l.Key()), func(tx *state.Tx) { tx.DeleteLease(l.Namespace, l.Key()) })
}

func (r *round) deleteFormer(f *journal.Former) {
	r.dropFormer(f)
	r.write.Remove(journal.RankDeleteLease, journal.FormerRecord(f), func(tx *state.Tx) { tx.DeleteFormer(f.Name()) })
}

func (r *round) putService(s *coe.ServiceFact) {
	old := r.services[s.UID]
	if old != nil {
		r.dropService(old)
		r.touched[old.Namespace] = true
	}
	r.addService(s)
	r.rests.note(journal.ServiceRecord(s.UID), s.Released)
	r.write.Put(journal.RankLease, journal.ServiceRecord(s.UID), s, func(tx *state.Tx) {
		if old != nil && old.Namespace != s.Namespace {
			tx.DeleteServiceFact(old.Namespace, s.UID)
		}
		tx.PutServiceFact(s)
	})
}

func (r *round) deleteService(s *coe.ServiceFact) {
	r.dropService(s)
	r.rests.note(journal.ServiceRecord(s.UID), 0)
	r.write.Remove(journal.RankDeleteLease, journal.ServiceRecord(s.UID), func(tx *state.Tx) { tx.DeleteServiceFact(s.Namespace, s.UID) })
}

func (r *round) putBlock(b blockFact) {
	key := blockKey{b.ELAN, b.Prefix}
	r.addBlock(b)
	r.touched[b.namespace] = true
	r.write.Put(journal.RankBlock, journal.BlockRecord(key.elan, key.prefix), b.Block, func(tx *state.Tx) { tx.PutBlock(b.namespace, b.Block) })
}

func (r *round) deleteBlock(b blockFact) {
	key := blockKey{b.ELAN, b.Prefix}
	r.dropBlock(b)
	r.touched[b.namespace] = true
	r.write.Remove(journal.RankDeleteBlock, journal.BlockRecord(key.elan, key.prefix), func(tx *state.Tx) { tx.DeleteBlock(b.namespace, b.ELAN, b.Prefix) })
}
