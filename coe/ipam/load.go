package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/coe/vips"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// load replaces the memory and the facts in the store by the records of the journal. It sets
// damaged records aside.
func (a *Assigner) load(ctx context.Context) error {
	records, err := a.journal.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the journal: %w", err)
	}
	claims := vips.New(a.cfg.VIPs)
	damaged, err := claims.Load(ctx)
	if err != nil {
		return err
	}
	confirmed, err := a.confirmed(ctx)
	if err != nil {
		return err
	}
	for _, err := range damaged {
		a.log.Error("address of a service is claimed again", "err", err)
	}
	before := a.damaged
	a.clear()
	j := a.decode(records, confirmed)
	a.restore(j)
	a.loadRests()
	a.reportDamage(before, records)
	a.stale = false
	for _, b := range a.blocks {
		a.repooled[b.Network] = true
	}
	a.adopting = j.Adopting
	a.unasked = len(a.damaged) > 0 || a.cfg.InUse != nil && (j.Adopting || len(j.Leases) == 0)
	a.known.Store(!a.unasked)
	if a.adopting && !a.unasked {
		a.orphans = append(a.orphans, journal.AdoptingRecord)
	}
	a.takeVIPs(claims)
	a.clusterChanged = true
	told := a.store.Views()
	a.store.Update(func(tx *state.Tx) {
		journal.Retract(tx, told)
		vips.Retract(tx, told)
		a.tell(tx)
		a.vips.Tell(tx)
	})
	a.log.Info("the journal is loaded", "leases", len(a.leases), "blocks", len(a.blocks), "services", len(a.services))
	return nil
}

// decode reads the records, and notes those that are damaged or missing.
func (a *Assigner) decode(records map[string][]byte, confirmed []coe.LeaseKey) *journal.Records {
	var j journal.Records
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if err := j.Decode(key, records[key]); err != nil {
			a.damaged.Note(key, err)
		}
	}
	slices.SortFunc(j.Leases, compareLeases)
	for _, key := range confirmed {
		if _, found := records[journal.LeaseRecord(key)]; !found && len(records) > 0 {
			a.damaged.Note(journal.LeaseRecord(key), errors.New("it is missing, although the backend has confirmed its interface"))
		}
	}
	return &j
}

// takeVIPs sets the claims of this Assigner to loaded ones, and holds their cluster addresses.
func (a *Assigner) takeVIPs(claims *vips.Claims) {
	a.vips = claims
	for c := range claims.AllCluster() {
		if !a.alloc.Hold(serviceDomain, c.Address, saidOwner(c.Address)) {
			claims.Drop(c) // a pod has the address
		}
	}
}

// confirmed lists the interfaces that the backend has confirmed.
func (a *Assigner) confirmed(ctx context.Context) ([]coe.LeaseKey, error) {
	if a.cfg.Confirmed == nil {
		return nil, nil
	}
	keys, err := a.cfg.Confirmed(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the confirmed interfaces: %w", err)
	}
	return keys, nil
}

// restore fills an empty memory. Leases and services are first, because they determine the
// namespaces of the instances and blocks that they use. Unused records are orphans.
func (a *Assigner) restore(j *journal.Records) {
	a.alloc.SetPools(a.pools)
	for _, l := range j.Leases {
		a.add(l)
	}
	formers := a.restoreFormers(j.Formers)
	for _, s := range j.Services {
		a.addService(s)
	}
	elans := map[string]*elan{}
	for _, ns := range a.namespaces {
		for _, e := range ns.elans {
			elans[e.Name] = e
		}
	}
	a.restoreIDs(j, elans)
	for _, b := range j.Blocks {
		key := blockKey{b.ELAN, b.Prefix}
		e := elans[b.ELAN]
		if e == nil {
			a.orphans = append(a.orphans, journal.BlockRecord(key.elan, key.prefix))
			continue
		}
		if err := a.restoreBlock(e, b); err != nil {
			a.damaged.Note(journal.BlockRecord(key.elan, key.prefix), err)
			continue
		}
		a.addBlock(blockFact{b, e.namespace.name})
		a.unused[key] = e
	}
	a.restoreNodes(j)
	a.restoreAddresses(j, formers)
}

// restoreNodes restores the records of nodes.
func (a *Assigner) restoreNodes(j *journal.Records) {
	for _, n := range j.Nodes {
		if a.cfg.Nodes.Network.IsValid() && n.Number > 0 && !a.cfg.Nodes.Network.Has(n.Number) {
			a.orphans = append(a.orphans, journal.NodeRecord(n.Node)) // of another network
			continue
		}
		if !a.cfg.Nodes.Network.IsValid() {
			n = &coe.NodeFact{Node: n.Node, Owner: n.Owner, Chassis: n.Chassis, ChassisChanged: n.ChassisChanged} // nodes have no numbers
		}
		if n.Number == 0 {
			a.numbers[n.Node] = n
			continue
		}
		if err := a.nodeIDs.Restore(n.Node.String(), n.Number); err != nil {
			a.damaged.Note(journal.NodeRecord(n.Node), err)
			continue
		}
		a.numbers[n.Node] = n
	}
	for _, n := range j.Networks {
		if !a.cfg.Nodes.Joined() {
			a.orphans = append(a.orphans, journal.NetworksRecord)
			continue
		}
		a.networks = n
	}
}

// restoreFormers indexes the resting addresses. It skips an address that the lease of the same
// interface has again: an interrupted write can leave such a record.
func (a *Assigner) restoreFormers(all []*journal.Former) []*journal.Former {
	var rest []*journal.Former
	for _, f := range all {
		l := a.leases[f.Key()]
		again := l != nil && a.cfg.domain(l.Namespace) == a.cfg.domain(f.Namespace) &&
			l.Has([]netip.Addr{f.Address.Address})
		if again {
			a.orphans = append(a.orphans, journal.FormerRecord(f))
			continue
		}
		a.addFormer(f)
		rest = append(rest, f)
	}
	return rest
}

// restoreIDs reserves the identifiers of instances in use, and notes instances in use that have
// none.
func (a *Assigner) restoreIDs(j *journal.Records, elans map[string]*elan) {
	for _, f := range j.ELANs {
		e := elans[f.Name]
		if e == nil {
			a.orphans = append(a.orphans, journal.ELANRecord(f.Name))
			continue
		}
		if err := a.vnis.Restore(f.Name, f.VNI); err != nil {
			a.damaged.Note(journal.ELANRecord(f.Name), err)
			continue
		}
		a.elans[f.Name] = elanFact{f, e.namespace.name}
	}
	for _, v := range j.VPNs {
		if ns := a.namespaces[v.Namespace]; ns == nil || len(ns.elans) == 0 {
			a.orphans = append(a.orphans, journal.VPNRecord(v.Name))
			continue
		}
		if other := a.vpns[v.Namespace]; other != nil {
			a.damaged.Note(journal.VPNRecord(v.Name), fmt.Errorf("namespace %s has vpn-instance %s already", v.Namespace, other.Name))
			continue
		}
		if err := a.rds.Restore(v.Name, v.RD); err != nil {
			a.damaged.Note(journal.VPNRecord(v.Name), err)
			continue
		}
		a.vpns[v.Namespace], a.vpnOwners[v.Name] = v, v.Namespace
	}
	for _, e := range elans {
		if a.elans[e.Name].ELANFact == nil {
			a.missingInstances = true
			a.damaged.Note(journal.ELANRecord(e.Name), errMissing)
		}
		if a.vpns[e.namespace.name] == nil {
			a.missingInstances = true
			a.damaged.Note(journal.VPNRecord(netvirt.VPNName(e.namespace.name)), fmt.Errorf("%w; it belongs to namespace %s", errMissing, e.namespace.name))
		}
	}
}

// restoreAddresses holds the addresses of leases, formers and services. If two records have the
// same address, or the same MAC address in one network, the first one holds it.
func (a *Assigner) restoreAddresses(j *journal.Records, formers []*journal.Former) {
	for _, l := range j.Leases {
		e := a.elanOf(a.namespace(l.Namespace), l.Node)
		var err error
		for n := 0; n < len(l.Addresses) && err == nil; n++ {
			err = a.hold(journal.LeaseRecord(l.Key()), e, l.Addresses[n], nil)
		}
		if err == nil {
			a.takeMAC(e, l) // the first owner may be set aside
			err = a.macTaken(e, l)
		}
		if err != nil {
			a.setAside(l, a.conflict(l.Namespace, err))
		}
	}
	for _, f := range formers {
		e := a.elanOf(a.namespace(f.Namespace), f.Node)
		if err := a.hold(journal.FormerRecord(f), e, f.Address, f); err != nil {
			a.dropFormer(f)
			a.damaged.Note(journal.FormerRecord(f), err)
		}
	}
	for _, s := range j.Services {
		err := a.alloc.RestoreAddress(dhcppool.Held{Domain: serviceDomain, Address: s.Address, Owner: journal.ServiceRecord(s.UID)})
		if err != nil {
			a.dropService(s)
			a.damaged.Note(journal.ServiceRecord(s.UID), err)
		}
	}
}

// tell puts every fact into the store.
func (m *memory) tell(tx *state.Tx) {
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
	for _, ns := range m.namespaces {
		for _, formers := range ns.formers {
			for _, f := range formers {
				tx.PutFormer(f.Name(), f.Node)
			}
		}
	}
	tx.SetNetworks(m.networks)
	tx.SetDamaged(m.damaged.Problems())
}
