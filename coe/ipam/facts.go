package ipam

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/vips"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Facts puts the choices of the leader into the Store of a standby replica. The replica then
// shows the same data as the leader, and can take over. Facts is for one goroutine. It must not
// be used after an Assigner of the same Store was loaded.
type Facts struct {
	store *coe.Store
	// retract has the function that removes the fact of each record from the store.
	retract map[string]func(*coe.Tx)
	damaged damage
}

// NewFacts returns Facts without records. It deletes the refusals of an Assigner of this
// process, because the new leader may have found an address.
func NewFacts(store *coe.Store) *Facts {
	namespaces := store.Namespaces()
	store.Update(func(tx *coe.Tx) {
		for _, ns := range namespaces {
			tx.SetRefusals(ns, nil, nil)
		}
	})
	return &Facts{store: store, retract: map[string]func(*coe.Tx){}, damaged: damage{}}
}

// Apply applies a revision of the journal. With snapshot, puts has all records, and Apply removes
// all other facts from the store, which an Assigner of this process may have left. Apply skips a
// damaged record: it is a problem of the store's cluster, and the error names it.
func (f *Facts) Apply(snapshot bool, puts map[string][]byte, deletes []string) error {
	var damaged []error
	var before []coe.View
	if snapshot {
		before = told(f.store)
		clear(f.retract)
		clear(f.damaged)
	}
	f.store.Update(func(tx *coe.Tx) {
		if snapshot {
			retract(tx, before)
		}
		for _, key := range deletes {
			f.forget(tx, key)
		}
		for _, key := range slices.Sorted(maps.Keys(puts)) {
			f.forget(tx, key)
			if err := f.tell(tx, key, puts[key]); err != nil {
				f.damaged.note(key, err)
				damaged = append(damaged, fmt.Errorf("read record %q: %w", key, err))
			}
		}
		tx.SetDamaged(f.damaged.problems())
	})
	return errors.Join(damaged...)
}

func (f *Facts) forget(tx *coe.Tx, key string) {
	if retract := f.retract[key]; retract != nil {
		retract(tx)
		delete(f.retract, key)
	}
	delete(f.damaged, key)
}

// tell puts the fact of a record into the store, and adds the function that removes it.
func (f *Facts) tell(tx *coe.Tx, key string, value []byte) error {
	var j journalled
	if err := j.decode(key, value); err != nil {
		return err
	}
	for _, l := range j.leases {
		tx.PutLease(l)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteLease(l.Namespace, l.Key()) }
	}
	for _, rest := range j.formers {
		tx.PutFormer(rest.name(), rest.Node)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteFormer(rest.name()) }
	}
	for _, b := range j.blocks {
		_, ns, err := netvirt.ParseELANName(b.ELAN)
		if err != nil {
			return err
		}
		tx.PutBlock(ns, b)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteBlock(ns, b.ELAN, b.Prefix) }
	}
	for _, e := range j.elans {
		_, ns, err := netvirt.ParseELANName(e.Name)
		if err != nil {
			return err
		}
		tx.PutELAN(ns, e)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteELAN(ns, e.Name) }
	}
	for _, v := range j.vpns {
		tx.PutVPN(v)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteVPN(v.Namespace) }
	}
	for _, s := range j.services {
		tx.PutServiceFact(s)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteServiceFact(s.Namespace, s.UID) }
	}
	for _, n := range j.nodes {
		tx.PutNodeFact(n)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteNodeFact(n.Node) }
	}
	for _, n := range j.networks {
		tx.SetNetworks(n)
		f.retract[key] = func(tx *coe.Tx) { tx.SetNetworks(nil) }
	}
	return nil
}

// VIPFacts puts the service addresses that the leader has claimed into the Store of a standby
// replica. It is for one goroutine.
type VIPFacts struct {
	store *coe.Store
	told  map[string]coe.VIPFact // by record
}

// NewVIPFacts returns VIPFacts without records.
func NewVIPFacts(store *coe.Store) *VIPFacts { return &VIPFacts{store, map[string]coe.VIPFact{}} }

// Apply applies a revision of the journal. With snapshot, puts has all records. Apply skips a
// record that cannot be read, and names it in the error.
func (f *VIPFacts) Apply(snapshot bool, puts map[string][]byte, deletes []string) error {
	var unreadable []error
	var before []coe.View
	if snapshot {
		before = told(f.store)
		clear(f.told)
	}
	f.store.Update(func(tx *coe.Tx) {
		retractVIPs(tx, before)
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
			fact, err := vips.Decode(key, puts[key])
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
