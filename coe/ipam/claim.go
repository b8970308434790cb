package ipam

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// claimPod updates the leases of a pod.
func (r *round) claimPod(s *space, p *coe.Pod) {
	settled := r.complete
	for n, i := range p.AllInterfaces() {
		w := wish{pod: p, iface: i, first: n == 0, key: coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}}
		if refusal := r.claim(s, w); refusal != nil {
			s.lease(w.key, refusal)
			settled = false
		}
	}
	if settled {
		delete(s.unsettled, p.UID)
	}
}

// wish is an interface that needs a lease.
type wish struct {
	pod   *coe.Pod
	iface coe.PodInterface
	first bool // it is the first interface of its pod
	key   coe.LeaseKey
}

// fits reports whether a lease is the one that the interface needs.
func fits(l *coe.Lease, p *coe.Pod, i coe.PodInterface) bool {
	return reaches(l, p, i) && l.Pod == p.Name
}

// reaches reports whether the addresses of a lease are those that the interface needs.
func reaches(l *coe.Lease, p *coe.Pod, i coe.PodInterface) bool {
	if l.Namespace != p.Namespace || l.Node != p.HostIP {
		return false
	}
	return l.Has(i.Addresses)
}

// claim gives an interface its lease:
//
//	lease      | fits the pod | name free |
//	any        | any          | no        | refused; a living lease is released
//	any        | yes          | yes       | kept, or taken up again
//	none       |              | yes       | chosen
//	living,    | no           | yes       | chosen again once the store is complete; the old
//	released   |              |           | addresses rest. If that fails, it is released
func (r *round) claim(s *space, w wish) *coe.Refusal {
	old := r.leases[w.key]
	if l := r.contested[w.key]; l != nil && reaches(l, w.pod, w.iface) {
		w.iface.Addresses = addressesOf(l) // keep exactly these: the pod may run with them
	}
	accord := old != nil && fits(old, w.pod, w.iface)
	if old != nil && !accord && !r.complete {
		return nil // a source that is not listed yet may report the pod as it was
	}
	if other := s.names[w.pod.Name]; other != "" && other != w.pod.UID {
		r.unserve(s, old)
		return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
			"pod %s has the name %s/%s; delete one of the two, or send another name", other, s.name, w.pod.Name)}
	}
	if accord {
		return r.keep(s, w, old)
	}
	refusal := r.choose(s, w, old)
	if refusal != nil {
		r.unserve(s, old)
	}
	return refusal
}

// unserve releases a living lease that does not fit its pod and cannot be replaced.
func (r *round) unserve(s *space, old *coe.Lease) {
	if old == nil || old.Released != 0 || !r.complete {
		return
	}
	r.release([]*coe.Lease{old})
	r.more[s.name] = true // its name is free now
}

// keep keeps a lease that fits, or takes it up again if it is released. It sets the MAC address
// that the pod requests now.
func (r *round) keep(s *space, w wish, old *coe.Lease) *coe.Refusal {
	l := *old
	l.Released = 0
	if old.Released != 0 {
		r.name(s, w, &l)
		if refusal := r.portTaken(&l); refusal != nil {
			return refusal
		}
	}
	if r.complete { // before, a source that is not listed yet may request another
		chooseMAC(r.elan(s.namespace, l.Node), w, &l, old)
	}
	s.names[l.Pod] = l.PodUID
	if l.Released != old.Released || l.MAC != old.MAC || l.DeniedMAC != old.DeniedMAC || l.Name != old.Name {
		r.putLease(&l)
	}
	return nil
}

// name sets the interface's name. The first interface at the pod's first claim is the primary
// one. It stays the primary one as long as its lease is not released.
func (r *round) name(s *space, w wish, l *coe.Lease) {
	l.Primary = (l.Primary || w.first) && !s.pods[l.PodUID].primary(l.InterfaceUID)
	l.Name = netvirt.InterfaceName(s.name, l.Pod, l.InterfaceUID, l.Primary)
}

// choose creates a lease for an interface without a lease that fits. The new lease replaces old,
// which can be nil.
func (r *round) choose(s *space, w wish, old *coe.Lease) *coe.Refusal {
	e := r.elan(s.namespace, w.pod.HostIP)
	if refusal := r.identify(s, e); refusal != nil {
		return refusal
	}
	chosen, refusal := r.addresses(s, e, w, old)
	if refusal != nil {
		return refusal
	}
	was := cmp.Or(old, r.contested[w.key])
	l := &coe.Lease{
		PodUID: w.key.PodUID, InterfaceUID: w.key.InterfaceUID,
		Namespace: s.name, Pod: w.pod.Name, Node: w.pod.HostIP, Addresses: chosen.addresses,
		Chosen: r.now.UnixMilli(),
	}
	if was != nil {
		l.Seq, l.Primary = was.Seq, was.Primary
	} else {
		l.Seq = r.seq + 1
	}
	r.name(s, w, l)
	if refusal := r.portTaken(l); refusal != nil {
		r.undo(s, chosen, old)
		return refusal
	}
	chooseMAC(e, w, l, was)
	r.putInstances(s, e)
	r.putBlocks(s, chosen.blocks)
	if old != nil {
		r.giveUp(old, l)
	}
	for _, f := range chosen.formers {
		r.deleteFormer(f)
	}
	r.putLease(l)
	return nil
}

// identify makes sure that the elan and its vpn-instance have identifiers.
func (r *round) identify(s *space, e *elan) *coe.Refusal {
	if refusal := r.nameTaken(s, e); refusal != nil {
		return refusal
	}
	if _, found := r.vnis.Get(e.Name); !found {
		return &coe.Refusal{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"no VNI of %d to %d is left for elan-instance %s; widen the range", r.cfg.VNIFrom, r.cfg.VNITo, e.Name)}
	}
	if _, found := r.rds.Get(r.vpnName(s.name)); !found {
		return &coe.Refusal{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"no route distinguisher of 100:%d to 100:%d is left for namespace %s; widen the range", r.cfg.RDFrom, r.cfg.RDTo, s.name)}
	}
	return nil
}

// putInstances records the identifiers of the elan and its vpn-instance.
func (r *round) putInstances(s *space, e *elan) {
	name := s.name
	if _, found := r.elans[e.Name]; !found {
		vni, _ := r.vnis.Get(e.Name)
		fact := &coe.ELANFact{Name: e.Name, VNI: vni}
		r.elans[e.Name] = elanFact{fact, name}
		r.write.put(rankInstance, elanRecord(e.Name), fact, func(tx *coe.Tx) { tx.PutELAN(name, fact) })
	}
	if r.vpns[name] == nil {
		vpn := r.vpnName(name)
		rd, _ := r.rds.Get(vpn)
		fact := &coe.VPNFact{Name: vpn, Namespace: name, RD: rd}
		r.vpns[name], r.vpnOwners[vpn] = fact, name
		r.write.put(rankInstance, vpnRecord(vpn), fact, func(tx *coe.Tx) { tx.PutVPN(fact) })
	}
}

// putBlocks records the blocks that have no record yet.
func (r *round) putBlocks(s *space, blocks []dhcppool.Block) {
	for _, b := range blocks {
		if _, found := r.blocks[blockKey{b.ELAN.Name, b.Prefix}]; found {
			continue
		}
		fact := &coe.Block{ELAN: b.ELAN.Name, Prefix: b.Prefix, Gateway: b.Gateway, Network: b.Network, Subnet: b.Subnet}
		fact.DNS = r.dns(fact)
		r.putBlock(blockFact{fact, s.name})
	}
}

// giveUp lets those addresses of a lease rest that its successor does not have.
func (r *round) giveUp(old, successor *coe.Lease) {
	domain := r.cfg.domain(old.Namespace)
	for _, a := range old.Addresses {
		if successor.Has([]netip.Addr{a.Address}) && domain == r.cfg.domain(successor.Namespace) {
			continue
		}
		f := &former{
			PodUID: old.PodUID, InterfaceUID: old.InterfaceUID,
			Namespace: old.Namespace, Node: old.Node, Address: a, Released: old.Released,
		}
		if f.Released == 0 {
			f.Released = r.stamp()
		}
		if r.note(formerRecord(f), f.Released); old.Released != 0 {
			r.rests[formerRecord(f)] = r.rests[leaseRecord(old.Key())]
		}
		r.alloc.Pass(domain, a.Address, formerRecord(f))
		r.addFormer(f)
		r.write.put(rankFormer, formerRecord(f), f, func(tx *coe.Tx) { tx.PutFormer(f.name(), f.Node) })
	}
}
