package ipam

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Facts tells a Store what another process chose, for one that does not lead:
// it shows the same, and is warm when it leads. It is for one goroutine, and to
// be left before an Assigner of the same Store is loaded.
type Facts struct {
	store *coe.Store
	// namespace is the namespace of an elan-instance's name.
	namespace func(elan string) (string, error)
	// retract takes back what each record told.
	retract map[string]func(*coe.Tx)
	damaged damage
}

// NewFacts returns Facts that have told nothing yet. What an Assigner of this process
// could not give is forgotten: who leads now may have.
func NewFacts(store *coe.Store, namespace func(elan string) (string, error)) *Facts {
	namespaces := store.Namespaces()
	store.Update(func(tx *coe.Tx) {
		for _, ns := range namespaces {
			tx.SetRefusals(ns, nil, nil)
		}
	})
	return &Facts{store: store, namespace: namespace, retract: map[string]func(*coe.Tx){}, damaged: damage{}}
}

// Apply tells what a revision of the journal changed; with snapshot, puts are all
// there is, and what the store has beside them was told by an Assigner that was at
// work before. A record that is damaged is left out: it is a problem of the store's
// cluster, and the error names it. The others are told.
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

// tell puts one record's fact into the store, and notes how to take it back.
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
		ns, err := f.namespace(b.ELAN)
		if err != nil {
			return err
		}
		tx.PutBlock(ns, b)
		f.retract[key] = func(tx *coe.Tx) { tx.DeleteBlock(ns, b.ELAN, b.Prefix) }
	}
	for _, e := range j.elans {
		ns, err := f.namespace(e.Name)
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

// VIPFacts tells a Store which addresses of services another process claimed, as
// Facts does of the other records. It is for one goroutine.
type VIPFacts struct {
	store *coe.Store
	told  map[string]coe.VIPFact // by record
}

// NewVIPFacts returns VIPFacts that have told nothing yet.
func NewVIPFacts(store *coe.Store) *VIPFacts { return &VIPFacts{store, map[string]coe.VIPFact{}} }

// Apply tells what a revision of the journal changed; with snapshot, puts are all
// there is. A record that cannot be read is left out and named in the error.
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
			fact, err := decodeVIP(key, puts[key])
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
