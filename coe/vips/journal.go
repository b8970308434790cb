package vips

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Load reads the claims. It removes a record that is damaged or conflicts with another record. Its
// service claims the address again.
func (v *Claims) Load(ctx context.Context) (damaged []error, err error) {
	records, err := v.journal.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load addresses of services: %w", err)
	}
	var facts []coe.VIPFact
	for _, key := range slices.Sorted(maps.Keys(records)) {
		f, err := decode(key, records[key])
		if err != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: %w", key, err))
			v.write.Remove(journal.RankDeleteLease, key, nil)
			continue
		}
		facts = append(facts, f)
	}
	sortFacts(facts)
	for _, f := range facts {
		if v.Holder(f) != nil {
			damaged = append(damaged, fmt.Errorf("read record %q: another record has its address", Record(f.VIP)))
			v.write.Remove(journal.RankDeleteLease, Record(f.VIP), nil)
			continue
		}
		v.add(f)
	}
	return damaged, nil
}

// Drop deletes a loaded claim and its record, because its address has another use. The store must not have the claim yet.
func (v *Claims) Drop(c *Claim) {
	v.remove(c)
	v.write.Remove(journal.RankDeleteLease, Record(c.VIP), nil)
}

// Tell puts every claim into the store.
func (v *Claims) Tell(tx *state.Tx) {
	for _, claims := range v.spaces {
		for _, c := range claims {
			tx.PutVIP(c.Namespace, c.VIP)
		}
	}
}

// Flush writes the changed claims to the journal and then to the store. After an error, the claims must be loaded again.
func (v *Claims) Flush(ctx context.Context, store *state.Store) error {
	if v.write.Empty() {
		return nil
	}
	if err := v.write.Commit(ctx, v.journal); err != nil {
		return err
	}
	store.Update(func(tx *state.Tx) {
		for _, tell := range v.told {
			tell(tx)
		}
	})
	v.write, v.told = journal.NewWrite(), nil
	return nil
}
