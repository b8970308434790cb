package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// No single record may stop a replica. A record that is unreadable, under a wrong
// key, missing or in contradiction to another is damaged: it is set aside and
// reported, and everything else is served.
//
//	record               | what becomes of it
//	unreadable, a copy   | What it said is taken from the backend, or chosen again. Then it is replaced or deleted
//	elan, vpn, block     | Made again: of the backend, of the leases that use it, or chosen again
//	lease, address taken | Its pod is refused until the other goes; it goes with its pod
//	former, service      | It goes; the service gets another address
//	of an unknown kind   | It stays, another release may have written it
//
// Nothing is chosen until the backend has said what is in use.

// damage is what is wrong with records, by their keys.
type damage map[string]flaw

// flaw is what is wrong with one record.
type flaw struct {
	why string
	// foreign: it is not this release's to replace or delete.
	foreign bool
}

var errMissing = errors.New("it is missing, and other records need it")

// note adds what is wrong with a record.
func (d damage) note(record string, err error) {
	if _, known := d[record]; !known {
		d[record] = flaw{err.Error(), errors.Is(err, errUnknownKind)}
	}
}

// problems lists the damage, sorted.
func (d damage) problems() []coe.Problem {
	var all []coe.Problem
	for _, record := range slices.Sorted(maps.Keys(d)) {
		all = append(all, RecordProblem(record, d[record].why))
	}
	return all
}

// RecordProblem is the problem of a record of what was chosen that is set aside.
func RecordProblem(record, why string) coe.Problem {
	message := "the record in the datastore is set aside: " + why
	if why == errUnknownKind.Error() {
		message += "; a later release may have written it; delete it if none did"
	}
	return coe.Problem{Kind: "record", UID: record, Name: record, Reason: coe.RecordDamaged, Message: message}
}

// maxLogged bounds what is logged of a damaged record.
const maxLogged = 2048

// reportDamage logs the damaged records that before does not have, with what
// is known of their content.
func (a *Assigner) reportDamage(before damage, records map[string][]byte) {
	for _, record := range slices.Sorted(maps.Keys(a.damaged)) {
		if _, known := before[record]; known {
			continue
		}
		value := records[record]
		a.log.Error("record of what was chosen is set aside", "record", record, "why", a.damaged[record].why,
			"value", string(value[:min(len(value), maxLogged)]))
	}
}

// homeless is an address that is leased or rests, and whose block has no record.
type homeless struct {
	record  string
	elan    *elan
	address coe.LeasedAddress
	former  *former // nil for a lease
}

// conflict is why a record cannot have an address.
func (a *Assigner) conflict(namespace string, err error) error {
	var taken *dhcppool.TakenError
	if errors.As(err, &taken) && isLeaseRecord(taken.Owner) && !a.cfg.Isolated {
		if l := a.leases[leaseOf(taken.Owner)]; l != nil && l.Namespace != namespace {
			return fmt.Errorf("%w: if each namespace had its own addresses before (isolation \"namespace\"), go back to that isolation, "+
				"delete the pods of one of the two namespaces, and change it when their addresses have rested", err)
		}
	}
	return err
}

// hold holds an address for a record while the journal is loaded: in its block, or in
// none where that has no record.
func (a *Assigner) hold(record string, e *elan, x coe.LeasedAddress, f *former) error {
	if _, found := a.blocks[blockKey{e.Name, x.Network}]; found {
		return a.alloc.RestoreAddress(dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: record, ELAN: e.Name, Prefix: x.Network})
	}
	if err := a.alloc.RestoreAddress(dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: record}); err != nil {
		return err
	}
	a.homeless = append(a.homeless, homeless{record, e, x, f})
	a.damaged.note(blockRecord(blockKey{e.Name, x.Network}), errMissing)
	return nil
}

// setAside takes a lease that is in contradiction to another record out of the
// memory. It holds what nobody else has.
func (a *Assigner) setAside(l *coe.Lease, err error) {
	a.drop(l)
	a.damaged.note(leaseRecord(l.Key()), err)
	a.homeless = slices.DeleteFunc(a.homeless, func(h homeless) bool { return h.record == leaseRecord(l.Key()) })
	if l.Released == 0 {
		a.aside[l.Key()] = l
		return
	}
	a.letGo(l)
}

// letGo releases the addresses that a record holds of a lease.
func (a *Assigner) letGo(l *coe.Lease) {
	for _, x := range l.Addresses {
		if domain := a.cfg.domain(l.Namespace); a.alloc.Owner(domain, x.Address) == leaseRecord(l.Key()) {
			a.alloc.Release(domain, x.Address)
		}
	}
}

// house gives homeless addresses their blocks again, or else other ones. A former
// that can have neither goes.
func (r *round) house() {
	all := r.homeless
	r.homeless = nil
	for _, h := range all {
		e, x := h.elan, h.address
		if r.alloc.Owner(e.Domain, x.Address) != h.record {
			continue // its lease is set aside
		}
		r.adoptBlocks(e, []coe.LeasedAddress{x})
		r.alloc.Release(e.Domain, x.Address)
		err := r.alloc.RestoreAddress(dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: h.record, ELAN: e.Name, Prefix: x.Network})
		if err != nil {
			r.rehouse(h)
		}
		if b, found := r.alloc.Through(e.Domain, x.Address); found {
			r.putBlocks(&space{namespace: e.namespace}, []dhcppool.Block{b})
		}
	}
}

// rehouse gives the address of a lease another block. It is not held.
func (r *round) rehouse(h homeless) {
	if h.former != nil {
		r.dropFormer(h.former)
		r.write.remove(rankDeleteLease, h.record, nil)
		return
	}
	l := *r.leases[leaseOf(h.record)]
	r.alloc.Hold(h.elan.Domain, h.address.Address, h.record)
	b, found := r.adoptedBlock(h.elan, &InUse{PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Node: l.Node}, h.address.Address)
	if !found {
		r.letGo(&l)
		r.deleteLease(r.leases[l.Key()])
		return
	}
	l.Addresses = slices.Clone(l.Addresses)
	for n := range l.Addresses {
		if l.Addresses[n].Address == h.address.Address {
			l.Addresses[n].Network, l.Addresses[n].Gateway = b.Prefix, b.Gateway
		}
	}
	r.putLease(&l)
}

// mend makes the missing records of elan-instances and vpn-instances that are in
// use. What the backend has of them was noted before.
func (r *round) mend() {
	r.lacking = false
	for _, name := range slices.Sorted(maps.Keys(r.namespaces)) {
		s := &space{namespace: r.namespaces[name]}
		for _, node := range sortedAddrs(s.elans) {
			e := s.elans[node]
			if e.users == 0 {
				continue
			}
			if r.elans[e.Name].ELANFact != nil && r.vpns[name] != nil {
				continue
			}
			if refusal := r.identify(s, e); refusal != nil {
				r.lacking = true
				continue
			}
			r.putInstances(s, e)
			r.touched[name] = true
		}
	}
}

// settleDamage deletes, once all is known, the damaged records that nothing has
// replaced.
func (r *round) settleDamage() {
	if len(r.damaged) == 0 || !r.complete || r.unasked {
		return
	}
	for key, l := range r.aside {
		p := r.store.Pod(key.PodUID).Pod
		if p == nil || !hasNetwork(p) || !slices.ContainsFunc(p.AllInterfaces(), func(i coe.PodInterface) bool {
			return i.UID == key.InterfaceUID && reaches(l, p, i)
		}) {
			r.takeUp(key)
		}
	}
	for record, f := range r.damaged {
		if !f.foreign && (!isLeaseRecord(record) || r.aside[leaseOf(record)] == nil) {
			r.orphans = append(r.orphans, record)
		}
	}
}

// addressesOf lists the addresses of a lease.
func addressesOf(l *coe.Lease) (all []netip.Addr) {
	for _, x := range l.Addresses {
		all = append(all, x.Address)
	}
	return all
}

// takeUp ends that a lease is set aside: there is another, or its pod is gone.
func (r *round) takeUp(key coe.LeaseKey) {
	l := r.aside[key]
	if l == nil {
		return
	}
	delete(r.aside, key)
	if now := r.leases[key]; now == nil {
		r.letGo(l)
		r.freed = true
	}
}

// mended forgets the damage of the records that were written or deleted.
func (r *round) mended() (changed bool) {
	for record := range r.write.changes {
		if _, was := r.damaged[record]; was {
			delete(r.damaged, record)
			r.clusterChanged, changed = true, true
			r.log.Info("damaged record of what was chosen is replaced or deleted", "record", record)
		}
	}
	return changed
}

// hint is what the backend has of the instances that an interface is in.
func (r *round) hint(u *InUse) {
	if name := r.cfg.ELANName(u.Node, u.Namespace); u.VNI != 0 && r.elans[name].ELANFact == nil {
		_ = r.vnis.Restore(name, u.VNI) // where another has it, one is chosen
	}
	if u.VPN == "" || u.RD == 0 || r.vpns[u.Namespace] != nil || r.vpnHints[u.Namespace] != "" {
		return
	}
	for ns, name := range r.vpnHints {
		if name == u.VPN && ns != u.Namespace {
			return
		}
	}
	if _, owned := r.vpnOwners[u.VPN]; !owned && r.rds.Restore(u.VPN, u.RD) == nil {
		r.vpnHints[u.Namespace] = u.VPN
	}
}

// vpnName is the name of a namespace's vpn-instance: the one that it has, that the
// backend has of it, or that it would get.
func (a *Assigner) vpnName(namespace string) string {
	if v := a.vpns[namespace]; v != nil {
		return v.Name
	}
	if name := a.vpnHints[namespace]; name != "" {
		return name
	}
	return a.cfg.VPNName(namespace)
}

// port is the name of a living lease's port; empty for others.
func (a *Assigner) port(l *coe.Lease) string {
	if a.cfg.PortName == nil || l.Released != 0 {
		return ""
	}
	return a.cfg.PortName(l.Name, l.PodUID)
}

// portTaken refuses a living lease whose port another lease has: the second pod would
// be plugged in in place of the first.
func (r *round) portTaken(l *coe.Lease) *coe.Refusal {
	port := r.port(l)
	other := r.ports[port]
	if port == "" || other == nil || other.Key() == l.Key() {
		return nil
	}
	return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
		"port %s is that of pod %s/%s (%s); delete one of the two pods and make it again", port, other.Namespace, other.Pod, other.PodUID)}
}

// owned says which other namespace has the name of one of the instances that a
// namespace's pods on a node need; nil for none.
func (r *round) owned(s *space, e *elan) *coe.Refusal {
	vpn := r.vpnName(s.name)
	refuse := func(kind, name, owner string) *coe.Refusal {
		return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
			"%s %s is that of namespace %s; delete the pods of one of the two namespaces, or use another name", kind, name, owner)}
	}
	if owner, taken := r.vpnOwners[vpn]; taken && owner != s.name {
		return refuse("vpn-instance", vpn, owner)
	}
	if fact, taken := r.elans[e.Name]; taken && fact.namespace != s.name {
		return refuse("elan-instance", e.Name, fact.namespace)
	}
	return nil
}
