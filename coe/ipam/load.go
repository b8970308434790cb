package ipam

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// load replaces the memory by what the journal holds, and the store's facts too.
func (a *Assigner) load(ctx context.Context) error {
	records, err := a.journal.Load(ctx)
	if err != nil {
		return fmt.Errorf("load what was chosen: %w", err)
	}
	var j journalled
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if err := j.decode(key, records[key]); err != nil {
			return fmt.Errorf("load record %q: %w; mend or delete it", key, err)
		}
	}
	slices.SortFunc(j.leases, compareLeases)
	before := a.memory
	a.memory = newMemory(a.cfg)
	if err := a.restore(&j); err != nil {
		a.memory = before
		return a.explain(err, &j)
	}
	a.stale = false
	for _, b := range a.blocks {
		a.repooled[b.Network] = true
	}
	a.adopting = j.adopting
	a.unasked = a.cfg.InUse != nil && (j.adopting || len(j.leases) == 0)
	a.known.Store(!a.unasked)
	if a.adopting && !a.unasked {
		a.orphans = append(a.orphans, adoptingRecord)
	}
	for addr := range a.saidBy {
		a.alloc.Hold(serviceDomain, addr, saidOwner(addr))
	}
	told := told(a.store)
	a.store.Update(func(tx *coe.Tx) {
		retract(tx, told)
		a.tell(tx)
	})
	a.log.Info("loaded what was chosen", "leases", len(a.leases), "blocks", len(a.blocks), "services", len(a.services))
	return nil
}

// explain adds to an error of restore what to do, when the journal is whole and
// only the isolation that it was written with is another.
func (a *Assigner) explain(err error, j *journalled) error {
	apart := &Assigner{cfg: a.cfg, pools: a.pools}
	apart.cfg.Isolated = true
	apart.memory = newMemory(apart.cfg)
	if a.cfg.Isolated || apart.restore(j) != nil {
		return err
	}
	return fmt.Errorf("%w: two namespaces were given the same addresses while each had its own (isolation \"namespace\"): "+
		"go back to that isolation, delete the pods of one of them, and change it when their addresses have rested", err)
}

// restore fills an empty memory. Users come before what they use, which tells
// to which namespace that belongs; what no one uses is an orphan.
func (a *Assigner) restore(j *journalled) error {
	a.alloc.SetPools(a.pools)
	for _, l := range j.leases {
		a.add(l)
	}
	formers := a.restoreFormers(j.formers)
	for _, s := range j.services {
		a.addService(s)
	}
	elans := map[string]*elan{}
	for _, ns := range a.namespaces {
		for _, e := range ns.elans {
			elans[e.Name] = e
		}
	}
	if err := a.restoreIDs(j, elans); err != nil {
		return err
	}
	for _, b := range j.blocks {
		key := blockKey{b.ELAN, b.Prefix}
		e := elans[b.ELAN]
		if e == nil {
			a.orphans = append(a.orphans, blockRecord(key))
			continue
		}
		err := a.alloc.RestoreBlock(dhcppool.Block{ELAN: e.ELAN, Prefix: b.Prefix, Gateway: b.Gateway, Network: b.Network, Subnet: b.Subnet})
		if err != nil {
			return fmt.Errorf("load record %q: %w; delete one of the two", blockRecord(key), err)
		}
		a.blocks[key] = blockFact{b, e.namespace.name}
	}
	if err := a.restoreNodes(j); err != nil {
		return err
	}
	return a.restoreAddresses(j, formers)
}

// restoreNodes takes what was chosen for nodes, where they are to have anything.
func (a *Assigner) restoreNodes(j *journalled) error {
	for _, n := range j.nodes {
		if n.Number == 0 || n.Number > a.cfg.NodeNetwork.Numbers() {
			a.orphans = append(a.orphans, nodeRecord(n.Node)) // of another network
			continue
		}
		if err := a.nodeIDs.Restore(n.Node.String(), n.Number); err != nil {
			return fmt.Errorf("load record %q: %w", nodeRecord(n.Node), err)
		}
		a.numbers[n.Node] = n
	}
	for _, n := range j.networks {
		if !a.cfg.NodeNetwork.IsValid() {
			a.orphans = append(a.orphans, networksRecord)
			continue
		}
		a.networks = n
	}
	return nil
}

// restoreFormers indexes the addresses that rest, without those that their own
// lease has again: a write that was cut short leaves such.
func (a *Assigner) restoreFormers(all []*former) []*former {
	var rest []*former
	for _, f := range all {
		l := a.leases[f.key()]
		again := l != nil && a.cfg.domain(l.Namespace) == a.cfg.domain(f.Namespace) &&
			l.Has([]netip.Addr{f.Address.Address})
		if again {
			a.orphans = append(a.orphans, formerRecord(f))
			continue
		}
		a.addFormer(f)
		rest = append(rest, f)
	}
	return rest
}

func (a *Assigner) restoreIDs(j *journalled, elans map[string]*elan) error {
	for _, f := range j.elans {
		e := elans[f.Name]
		if e == nil {
			a.orphans = append(a.orphans, elanRecord(f.Name))
			continue
		}
		if err := a.vnis.Restore(f.Name, f.VNI); err != nil {
			return fmt.Errorf("load record %q: %w", elanRecord(f.Name), err)
		}
		a.elans[f.Name] = elanFact{f, e.namespace.name}
	}
	for _, v := range j.vpns {
		if ns := a.namespaces[v.Namespace]; ns == nil || len(ns.elans) == 0 {
			a.orphans = append(a.orphans, vpnRecord(v.Name))
			continue
		}
		if err := a.rds.Restore(v.Name, v.RD); err != nil {
			return fmt.Errorf("load record %q: %w", vpnRecord(v.Name), err)
		}
		a.vpns[v.Namespace] = v
	}
	return nil
}

func (a *Assigner) restoreAddresses(j *journalled, formers []*former) error {
	hold := func(record, namespace string, node netip.Addr, x coe.LeasedAddress) error {
		e := a.elan(a.namespace(namespace), node)
		if _, found := a.elans[e.Name]; !found || a.vpns[namespace] == nil {
			return fmt.Errorf("load record %q: its elan-instance %s or vpn-instance has no record", record, e.Name)
		}
		err := a.alloc.RestoreAddress(dhcppool.Held{
			Domain: e.Domain, Address: x.Address, Owner: record, ELAN: e.Name, Prefix: x.Network,
		})
		if err != nil {
			return fmt.Errorf("load record %q: %w", record, err)
		}
		return nil
	}
	for _, l := range j.leases {
		if len(l.Addresses) == 0 {
			return fmt.Errorf("load record %q: it has no address", leaseRecord(l.Key()))
		}
		for _, x := range l.Addresses {
			if err := hold(leaseRecord(l.Key()), l.Namespace, l.Node, x); err != nil {
				return err
			}
		}
	}
	for _, f := range formers {
		if err := hold(formerRecord(f), f.Namespace, f.Node, f.Address); err != nil {
			return err
		}
	}
	for _, s := range j.services {
		err := a.alloc.RestoreAddress(dhcppool.Held{Domain: serviceDomain, Address: s.Address, Owner: serviceRecord(s.UID)})
		if err != nil {
			return fmt.Errorf("load record %q: %w", serviceRecord(s.UID), err)
		}
	}
	return nil
}

// tell puts every fact into the store.
func (m *memory) tell(tx *coe.Tx) {
	for _, l := range m.leases {
		tx.PutLease(l)
	}
	for _, b := range m.blocks {
		tx.PutBlock(b.namespace, b.Block)
	}
	for _, e := range m.elans {
		tx.PutELAN(e.namespace, e.ELANFact)
	}
	for _, v := range m.vpns {
		tx.PutVPN(v)
	}
	for _, s := range m.services {
		tx.PutServiceFact(s)
	}
	for _, n := range m.numbers {
		tx.PutNodeFact(n)
	}
	tx.SetNetworks(m.networks)
}

// told is what the store has of what is chosen. It may differ from the memory
// after a write that failed, and is what another Assigner told, or Facts.
func told(store *coe.Store) []coe.View {
	var views []coe.View
	for _, ns := range store.Namespaces() {
		views = append(views, store.View(ns))
	}
	return views
}

// retract takes every fact out of the store.
func retract(tx *coe.Tx, views []coe.View) {
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
	tx.SetNetworks(nil)
}
