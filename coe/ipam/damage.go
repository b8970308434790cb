package ipam

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// No single record may stop a replica. A record is damaged if it is unreadable, stored
// under a wrong key, missing, or in conflict with another record. A damaged record is set
// aside and reported. All other records are used.
//
//	record                | what happens to it
//	unreadable, a copy    | its content is read from the backend, or chosen again; then it is replaced or deleted
//	elan, vpn, block      | restored from the backend or from the leases that use it, or chosen again
//	lease, address taken  | its pod is refused while another record has the address; deleted with its pod
//	former, service       | deleted; the service gets another address
//	of an unknown kind    | kept: another release may have written it
//
// Nothing is chosen until the backend has listed the addresses in use.

var errMissing = errors.New("it is missing, and other records need it")

// maxLogged is the largest number of bytes of a damaged record that are logged.
const maxLogged = 2048

// reportDamage logs the damaged records that before does not have, with the beginning of
// their content.
func (a *Assigner) reportDamage(before journal.Damage, records map[string][]byte) {
	for _, record := range slices.Sorted(maps.Keys(a.damaged)) {
		if _, known := before[record]; known {
			continue
		}
		value := records[record]
		a.log.Error("damaged record of the journal is set aside", "record", record, "why", a.damaged[record].Why,
			"value", string(value[:min(len(value), maxLogged)]))
	}
}

// addressWithoutBlock is an address that is leased or rests while its block has no record.
type addressWithoutBlock struct {
	record  string
	elan    *elan
	address coe.LeasedAddress
	former  *journal.Former // nil for a lease
}

// conflict explains why a record cannot have an address.
func (a *Assigner) conflict(namespace string, err error) error {
	var taken *dhcppool.TakenError
	if errors.As(err, &taken) && journal.IsLease(taken.Owner) && !a.cfg.Isolated {
		if l := a.leases[journal.LeaseOf(taken.Owner)]; l != nil && l.Namespace != namespace {
			return fmt.Errorf("%w: if each namespace had its own addresses before (isolation \"namespace\"), go back to that isolation, "+
				"delete the pods of one of the two namespaces, and change it when their addresses have rested", err)
		}
	}
	return err
}

// hold holds an address for a record while the journal is loaded. If its block has no
// record, the address is held without a block.
func (a *Assigner) hold(record string, e *elan, x coe.LeasedAddress, f *journal.Former) error {
	if _, found := a.blocks[blockKey{e.Name, x.Network}]; found {
		return a.alloc.RestoreAddress(a.behind(record, e, x))
	}
	if err := a.alloc.RestoreAddress(dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: record}); err != nil {
		return err
	}
	a.withoutBlock = append(a.withoutBlock, addressWithoutBlock{record, e, x, f})
	a.damaged.Note(journal.BlockRecord(e.Name, x.Network), errMissing)
	return nil
}

// setAside removes a lease that conflicts with another record from the indexes. A living
// lease keeps its other addresses and becomes contested.
func (a *Assigner) setAside(l *coe.Lease, err error) {
	a.drop(l)
	a.damaged.Note(journal.LeaseRecord(l.Key()), err)
	a.withoutBlock = slices.DeleteFunc(a.withoutBlock, func(x addressWithoutBlock) bool { return x.record == journal.LeaseRecord(l.Key()) })
	if l.Released == 0 {
		a.contested[l.Key()] = l
		a.use(a.elanOf(a.namespace(l.Namespace), l.Node), l.Addresses...)
		return
	}
	a.releaseAddresses(l)
}

// releaseAddresses releases the addresses that the record of a lease holds.
func (a *Assigner) releaseAddresses(l *coe.Lease) {
	for _, x := range l.Addresses {
		if domain := a.cfg.domain(l.Namespace); a.alloc.Owner(domain, x.Address) == journal.LeaseRecord(l.Key()) {
			a.alloc.Release(domain, x.Address)
		}
	}
}

// restoreBlocks restores the blocks of the addresses without a block. If that fails, a
// lease moves to another block and a former is deleted.
func (a adoption) restoreBlocks() {
	all := a.withoutBlock
	a.withoutBlock = nil
	for _, h := range all {
		e, x := h.elan, h.address
		if a.alloc.Owner(e.Domain, x.Address) != h.record {
			continue // its lease was set aside
		}
		a.adoptBlocks(e, []coe.LeasedAddress{x}, nil)
		a.alloc.Release(e.Domain, x.Address)
		if err := a.alloc.RestoreAddress(a.behind(h.record, e, x)); err != nil {
			a.moveToBlock(h)
		}
		if b, found := a.alloc.Through(e.Domain, x.Address); found {
			a.putBlocks(e, []dhcppool.Block{b})
		}
	}
}

// moveToBlock moves an address, which is not held, to another block. If no block can have
// it, its record is deleted.
func (a adoption) moveToBlock(h addressWithoutBlock) {
	if h.former != nil {
		a.deleteFormer(h.former)
		return
	}
	l := *a.leases[journal.LeaseOf(h.record)]
	a.alloc.Hold(h.elan.Domain, h.address.Address, h.record)
	b, found := a.adoptedBlock(h.elan, &inuse.Interface{PodUID: l.PodUID, InterfaceUID: l.InterfaceUID, Node: l.Node}, h.address.Address)
	if !found {
		a.releaseAddresses(&l)
		a.deleteLease(a.leases[l.Key()])
		return
	}
	l.Addresses = slices.Clone(l.Addresses)
	for n := range l.Addresses {
		if l.Addresses[n].Address == h.address.Address {
			l.Addresses[n].Network, l.Addresses[n].Gateway = h.elan.network(b), b.Gateway
		}
	}
	a.putLease(&l)
}

// restoreInstances makes the missing records of elan-instances and vpn-instances that are
// in use, with the identifiers that adoptIDs found.
func (r *round) restoreInstances() {
	r.missingInstances = false
	for _, name := range slices.Sorted(maps.Keys(r.namespaces)) {
		elans := r.namespaces[name].elans
		for _, node := range sortedAddrs(elans) {
			e := elans[node]
			if e.users == 0 || r.elans[e.Name].ELANFact != nil && r.vpns[name] != nil {
				continue
			}
			if refusal := r.identify(e); refusal != nil {
				r.missingInstances = true
				continue
			}
			r.putInstances(e)
			r.touched[name] = true
		}
	}
}

// settleDamage deletes the damaged records that were not replaced. It does so once the store is
// complete and the addresses in use are known.
func (r *round) settleDamage() {
	if len(r.damaged) == 0 || !r.complete || r.unasked {
		return
	}
	for key, l := range r.contested {
		p := r.store.Pod(key.PodUID).Pod
		if p == nil || !hasNetwork(p) || !slices.ContainsFunc(p.AllInterfaces(), func(i coe.PodInterface) bool {
			return i.UID == key.InterfaceUID && reaches(l, p, i)
		}) {
			r.dropContested(key)
		}
	}
	for record, f := range r.damaged {
		if !f.UnknownKind && (!journal.IsLease(record) || r.contested[journal.LeaseOf(record)] == nil) {
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

// dropContested forgets a contested lease that was replaced, or whose pod is deleted.
func (r *round) dropContested(key coe.LeaseKey) {
	l := r.contested[key]
	if l == nil {
		return
	}
	delete(r.contested, key)
	r.leave(r.elanOf(r.namespace(l.Namespace), l.Node), l.Addresses...)
	if now := r.leases[key]; now == nil {
		r.releaseAddresses(l)
		r.freed = true
	}
}

// clearDamage forgets the damage of the records that were just written or deleted, and
// reports whether there were any.
func (r *round) clearDamage() (changed bool) {
	for record := range r.damaged {
		if r.write.Has(record) {
			delete(r.damaged, record)
			r.clusterChanged, changed = true, true
			r.log.Info("damaged record of the journal is replaced or deleted", "record", record)
		}
	}
	return changed
}

// adoptIDs reserves the VNI and the route distinguisher that the backend has for the
// instances of an interface, unless a record has others.
func (a adoption) adoptIDs(u *inuse.Interface) {
	if name := netvirt.ELANName(u.Node, u.Namespace); u.VNI != 0 && a.elans[name].ELANFact == nil {
		_ = a.vnis.Restore(name, u.VNI) // if it is taken, another is chosen
	}
	if u.VPN == "" || u.RD == 0 || a.vpns[u.Namespace] != nil || a.adoptedVPNs[u.Namespace] != "" {
		return
	}
	for ns, name := range a.adoptedVPNs {
		if name == u.VPN && ns != u.Namespace {
			return
		}
	}
	if _, owned := a.vpnOwners[u.VPN]; !owned && a.rds.Restore(u.VPN, u.RD) == nil {
		a.adoptedVPNs[u.Namespace] = u.VPN
	}
}

// vpnName returns the name of a namespace's vpn-instance: the recorded name, else the name in
// the backend, else netvirt.VPNName.
func (a *Assigner) vpnName(namespace string) string {
	if v := a.vpns[namespace]; v != nil {
		return v.Name
	}
	if name := a.adoptedVPNs[namespace]; name != "" {
		return name
	}
	return netvirt.VPNName(namespace)
}

// port returns the port name of a living lease, and an empty name for a released lease.
func (a *Assigner) port(l *coe.Lease) string {
	if l.Released != 0 {
		return ""
	}
	return a.cfg.PortName(l.Name, l.PodUID)
}

// portTaken refuses a living lease whose port name another lease has. Otherwise the second
// pod would replace the first pod on the port.
func (r *round) portTaken(l *coe.Lease) *coe.Refusal {
	port := r.port(l)
	other := r.ports[port]
	if port == "" || other == nil || other.Key() == l.Key() {
		return nil
	}
	return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
		"port %s is the port of pod %s/%s (%s); delete one of the two pods and create it again", port, other.Namespace, other.Pod, other.PodUID)}
}

// nameTaken refuses an elan if another namespace has its name, or the name of its
// vpn-instance.
func (r *round) nameTaken(e *elan) *coe.Refusal {
	namespace := e.namespace.name
	vpn := r.vpnName(namespace)
	refuse := func(kind, name, owner string) *coe.Refusal {
		return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
			"%s %s belongs to namespace %s; delete the pods of one of the two namespaces, or use another name", kind, name, owner)}
	}
	if owner, taken := r.vpnOwners[vpn]; taken && owner != namespace {
		return refuse("vpn-instance", vpn, owner)
	}
	if fact, taken := r.elans[e.Name]; taken && fact.namespace != namespace {
		return refuse("elan-instance", e.Name, fact.namespace)
	}
	return nil
}
