package vips

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// Facts puts the service addresses that the leader has claimed into the Store of a standby
// replica. Facts is for one goroutine.
type Facts struct {
	store *state.Store
	told  map[string]coe.VIPFact // by record
}

// NewFacts returns Facts without records.
func NewFacts(store *state.Store) *Facts { return &Facts{store, map[string]coe.VIPFact{}} }

// Apply applies a revision of the journal. With snapshot, puts has all records. Apply skips a
// record that cannot be read, and names it in the error.
func (f *Facts) Apply(snapshot bool, puts map[string][]byte, deletes []string) error {
	var unreadable []error
	var before []coe.View
	if snapshot {
		before = f.store.Views()
		clear(f.told)
	}
	f.store.Update(func(tx *state.Tx) {
		Retract(tx, before)
		forget := func(key string) {
			if had, found := f.told[key]; found {
				tx.DeleteVIP(had.Namespace, had.VIP)
				delete(f.told, key)
			}
		}
		for _, key := range deletes {
			forget(key)
		}
		for _, key := range slices.Sorted(maps.Keys(puts)) {
			forget(key)
			fact, err := decode(key, puts[key])
			if err != nil {
				unreadable = append(unreadable, fmt.Errorf("read record %q: %w", key, err))
				continue
			}
			tx.PutVIP(fact.Namespace, fact.VIP)
			f.told[key] = fact
		}
	})
	return errors.Join(unreadable...)
}

// Retract removes every VIP of the views from the store.
func Retract(tx *state.Tx, views []coe.View) {
	for _, view := range views {
		for vip := range view.VIPs {
			tx.DeleteVIP(view.Namespace, vip)
		}
	}
}
