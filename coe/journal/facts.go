package journal

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Facts puts the choices of the leader into the Store of a standby replica. The replica then
// shows the same data as the leader, and can take over. Facts is for one goroutine. It must not
// be used after an Assigner of the same Store (coe/ipam) was loaded.
type Facts struct {
	store *state.Store
	// retract has the function that removes the fact of each record from the store.
	retract map[string]func(*state.Tx)
	damaged Damage
}

// NewFacts returns Facts without records. It deletes the refusals of an Assigner of this
// process, because the new leader may have found an address.
func NewFacts(store *state.Store) *Facts {
	namespaces := store.Namespaces()
	store.Update(func(tx *state.Tx) {
		for _, ns := range namespaces {
			tx.SetRefusals(ns, nil, nil)
		}
	})
	return &Facts{store: store, retract: map[string]func(*state.Tx){}, damaged: Damage{}}
}

// Apply applies a revision of the journal. With snapshot, puts has all records, and Apply removes
// all other facts from the store, which an Assigner of this process may have left. Apply skips a
// damaged record: it is a problem of the store's cluster, and the error names it.
func (f *Facts) Apply(snapshot bool, puts map[string][]byte, deletes []string) error {
	var damaged []error
	var before []coe.View
	if snapshot {
		before = f.store.Views()
		clear(f.retract)
		clear(f.damaged)
	}
	f.store.Update(func(tx *state.Tx) {
		if snapshot {
			Retract(tx, before)
		}
		for _, key := range deletes {
			f.forget(tx, key)
		}
		for _, key := range slices.Sorted(maps.Keys(puts)) {
			f.forget(tx, key)
			if err := f.tell(tx, key, puts[key]); err != nil {
				f.damaged.Note(key, err)
				damaged = append(damaged, fmt.Errorf("read record %q: %w", key, err))
			}
		}
		tx.SetDamaged(f.damaged.Problems())
	})
	return errors.Join(damaged...)
}

func (f *Facts) forget(tx *state.Tx, key string) {
	if retract := f.retract[key]; retract != nil {
		retract(tx)
		delete(f.retract, key)
	}
	delete(f.damaged, key)
}

// tell puts the fact of a record into the store, and adds the function that removes it.
func (f *Facts) tell(tx *state.Tx, key string, value []byte) error {
	var j Records
	if err := j.Decode(key, value); err != nil {
		return err
	}
	for _, l := range j.Leases {
		tx.PutLease(l)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteLease(l.Namespace, l.Key()) }
	}
	for _, rest := range j.Formers {
		tx.PutFormer(rest.Name(), rest.Node)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteFormer(rest.Name()) }
	}
	for _, b := range j.Blocks {
		_, ns, err := netvirt.ParseELANName(b.ELAN)
		if err != nil {
			return err
		}
		tx.PutBlock(ns, b)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteBlock(ns, b.ELAN, b.Prefix) }
	}
	for _, e := range j.ELANs {
		_, ns, err := netvirt.ParseELANName(e.Name)
		if err != nil {
			return err
		}
		tx.PutELAN(ns, e)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteELAN(ns, e.Name) }
	}
	for _, v := range j.VPNs {
		tx.PutVPN(v)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteVPN(v.Namespace) }
	}
	for _, s := range j.Services {
		tx.PutServiceFact(s)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteServiceFact(s.Namespace, s.UID) }
	}
	for _, n := range j.Nodes {
		tx.PutNodeFact(n)
		f.retract[key] = func(tx *state.Tx) { tx.DeleteNodeFact(n.Node) }
	}
	for _, n := range j.Networks {
		tx.SetNetworks(n)
		f.retract[key] = func(tx *state.Tx) { tx.SetNetworks(nil) }
	}
	return nil
}

// Retract removes every fact of the journal from the store: the facts of the views, and the facts of the cluster.
func Retract(tx *state.Tx, views []coe.View) {
	for _, v := range views {
		for _, l := range v.Leases {
			tx.DeleteLease(v.Namespace, l.Key())
		}
		for _, b := range v.Blocks {
			tx.DeleteBlock(v.Namespace, b.ELAN, b.Prefix)
		}
		for name := range v.ELANs {
			tx.DeleteELAN(v.Namespace, name)
		}
		for uid := range v.ServiceFacts {
			tx.DeleteServiceFact(v.Namespace, uid)
		}
		if v.VPN != nil {
			tx.DeleteVPN(v.Namespace)
		}
	}
	tx.ForgetNodeFacts()
	tx.ForgetFormers()
	tx.SetAddressProblems(nil)
	tx.SetNetworks(nil)
	tx.SetDamaged(nil)
}
