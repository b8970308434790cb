package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// claimPod updates the leases of a pod.
func (r *round) claimPod(s *space, p *coe.Pod) {
	settled := r.complete
	for n, i := range p.AllInterfaces() {
		key := coe.LeaseKey{PodUID: p.UID, InterfaceUID: i.UID}
		c := &claim{round: r, space: s, pod: p, iface: i, first: n == 0, key: key, old: r.leases[key]}
		if refusal := c.settle(); refusal != nil {
			s.lease(key, refusal)
			settled = false
		}
	}
	if settled {
		delete(s.unsettled, p.UID)
	}
}

// claim gives one interface its lease in a round.
type claim struct {
	*round
	space *space
	pod   *coe.Pod
	iface coe.PodInterface
	first bool // it is the first interface of its pod
	key   coe.LeaseKey
	old   *coe.Lease // the interface's lease before; nil for none
	elan  *elan      // of the pod's namespace on its node; choose sets it
	chosen
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

// settle gives the interface its lease:
//
//	lease      | fits the pod | name free |
//	any        | any          | no        | refused; a living lease is released
//	any        | yes          | yes       | kept, or taken up again
//	none       |              | yes       | chosen
//	living,    | no           | yes       | chosen again once the store is complete; the old
//	released   |              |           | addresses rest. If that fails, it is released
func (c *claim) settle() *coe.Refusal {
	if l := c.contested[c.key]; l != nil && reaches(l, c.pod, c.iface) {
		c.iface.Addresses = addressesOf(l) // keep exactly these: the pod may run with them
		if err := c.macTaken(c.elanOf(c.space.namespace, l.Node), l); err != nil {
			return &coe.Refusal{Reason: coe.AddressTaken, Message: err.Error()}
		}
	}
	accord := c.old != nil && fits(c.old, c.pod, c.iface)
	if c.old != nil && !accord && !c.complete {
		return nil // a source that is not listed yet may report the pod as it was
	}
	if other := c.space.names[c.pod.Name]; other != "" && other != c.pod.UID {
		c.unserve()
		return &coe.Refusal{Reason: coe.NameTaken, Message: fmt.Sprintf(
			"pod %s has the name %s/%s; delete one of the two, or send another name", other, c.space.name, c.pod.Name)}
	}
	if accord {
		return c.keep()
	}
	refusal := c.choose()
	if refusal != nil {
		c.unserve()
	}
	return refusal
}

// unserve releases a living lease that does not fit its pod and cannot be replaced.
func (c *claim) unserve() {
	if c.old == nil || c.old.Released != 0 || !c.complete {
		return
	}
	c.release([]*coe.Lease{c.old})
	c.more[c.space.name] = true // its name is free now
}

// keep keeps a lease that fits, or takes it up again if it is released. It sets the MAC address
// that the pod requests now.
func (c *claim) keep() *coe.Refusal {
	old := c.old
	l := *old
	l.Released = 0
	if old.Released != 0 {
		c.name(&l)
		if refusal := c.portTaken(&l); refusal != nil {
			return refusal
		}
	}
	c.noteNetworkType(netvirt.ELANName(l.Node, c.space.name), c.iface)
	if c.complete { // before, a source that is not listed yet may request another
		c.chooseMAC(c.elanOf(c.space.namespace, l.Node), c.pod, &l, old)
		c.setDHCP(&l)
	}
	c.space.names[l.Pod] = l.PodUID
	if l.Released != old.Released || l.MAC != old.MAC || l.DeniedMAC != old.DeniedMAC || l.DeniedBy != old.DeniedBy || l.Name != old.Name ||
		l.DHCP != old.DHCP || !slices.Equal(l.DNS, old.DNS) {
		c.putLease(&l)
	}
	return nil
}

// setDHCP sets whether an interface has DHCP, and the DNS servers of its blocks if it has.
func (c *claim) setDHCP(l *coe.Lease) {
	var dns []netip.Addr
	l.DHCP, l.DNS = c.pod.DHCP, nil
	elan := netvirt.ELANName(l.Node, l.Namespace)
	for _, a := range l.Addresses {
		if block, found := c.blocks[blockKey{elan, a.Network}]; found {
			l.DHCP = l.DHCP || block.DHCP
			dns = append(dns, block.DNS...)
		}
	}
	if l.DHCP {
		slices.SortFunc(dns, netip.Addr.Compare)
		l.DNS = slices.Compact(dns)
	}
}

// name sets the interface's name. The first interface at the pod's first claim is the primary
// one. It stays the primary one as long as its lease is not released.
func (c *claim) name(l *coe.Lease) {
	l.Primary = (l.Primary || c.first) && !c.space.pods[l.PodUID].primary(l.InterfaceUID)
	l.Name = netvirt.InterfaceName(c.space.name, l.Pod, l.InterfaceUID, l.Primary)
}

// choose creates a lease for an interface without a lease that fits. The new lease replaces the
// old one.
func (c *claim) choose() *coe.Refusal {
	c.elan = c.elanOf(c.space.namespace, c.pod.HostIP)
	if refusal := c.identify(c.elan); refusal != nil {
		return refusal
	}
	if refusal := c.chooseAddresses(); refusal != nil {
		c.undo()
		return refusal
	}
	was := cmp.Or(c.old, c.contested[c.key])
	l := &coe.Lease{
		PodUID: c.key.PodUID, InterfaceUID: c.key.InterfaceUID,
		Namespace: c.space.name, Pod: c.pod.Name, Node: c.pod.HostIP, Addresses: c.addresses,
		Chosen: c.now.UnixMilli(),
	}
	if was != nil {
		l.Seq, l.Primary = was.Seq, was.Primary
	} else {
		l.Seq = c.seq + 1
	}
	c.name(l)
	if refusal := c.portTaken(l); refusal != nil {
		c.undo()
		return refusal
	}
	c.putInstances(c.elan)
	c.noteNetworkType(c.elan.Name, c.iface)
	c.putBlocks(c.elan, c.newBlocks)
	c.chooseMAC(c.elan, c.pod, l, was)
	c.setDHCP(l)
	if c.old != nil {
		c.giveUp(c.old, l)
	}
	for _, f := range c.formers {
		c.deleteFormer(f)
	}
	c.putLease(l)
	return nil
}

// identify makes sure that the elan and its vpn-instance have identifiers.
func (r *round) identify(e *elan) *coe.Refusal {
	namespace := e.namespace.name
	if refusal := r.nameTaken(e); refusal != nil {
		return refusal
	}
	if _, found := r.vnis.Get(e.Name); !found {
		return &coe.Refusal{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"no VNI of %d to %d is left for elan-instance %s; widen the range", r.cfg.VNIFrom, r.cfg.VNITo, e.Name)}
	}
	if _, found := r.rds.Get(r.vpnName(namespace)); !found {
		return &coe.Refusal{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"no route distinguisher of 100:%d to 100:%d is left for namespace %s; widen the range", r.cfg.RDFrom, r.cfg.RDTo, namespace)}
	}
	return nil
}

// putInstances records the identifiers of the elan and its vpn-instance.
func (r *round) putInstances(e *elan) {
	name := e.namespace.name
	if _, found := r.elans[e.Name]; !found {
		vni, _ := r.vnis.Get(e.Name)
		r.putELAN(elanFact{&coe.ELANFact{Name: e.Name, VNI: vni}, name})
	}
	if r.vpns[name] == nil {
		vpn := r.vpnName(name)
		rd, _ := r.rds.Get(vpn)
		fact := &coe.VPNFact{Name: vpn, Namespace: name, RD: rd}
		r.vpns[name], r.vpnOwners[vpn] = fact, name
		r.write.Put(journal.RankInstance, journal.VPNRecord(vpn), fact, func(tx *state.Tx) { tx.PutVPN(fact) })
	}
}

func (r *round) putELAN(e elanFact) {
	r.elans[e.Name] = e
	r.write.Put(journal.RankInstance, journal.ELANRecord(e.Name), e.ELANFact, func(tx *state.Tx) { tx.PutELAN(e.namespace, e.ELANFact) })
}

// noteNetworkType records the network-type of an interface in an elan-instance.
func (r *round) noteNetworkType(elan string, i coe.PodInterface) {
	e := r.elans[elan]
	if e.ELANFact == nil || e.NetworkType == i.Type() || e.NetworkType == coe.MixedNetworks {
		return
	}
	noted := *e.ELANFact
	noted.NetworkType = coe.MixedNetworks
	if e.NetworkType == "" {
		noted.NetworkType = i.Type()
	}
	r.putELAN(elanFact{&noted, e.namespace})
}

// putBlocks records the blocks that have no record yet.
func (r *round) putBlocks(e *elan, blocks []dhcppool.Block) {
	for _, b := range blocks {
		fact := coe.Block{ELAN: e.Name, Prefix: e.network(b), Gateway: b.Gateway, Network: b.Network, Subnet: b.Subnet}
		if b.ELAN != e.ELAN {
			fact.Shared = b.Prefix
		}
		if had, found := r.blocks[blockKey{e.Name, fact.Prefix}]; found && had.Shared == fact.Shared {
			continue
		}
		r.putBlock(blockFact{r.withDHCP(fact), e.namespace.name})
	}
}

// giveUp lets those addresses of a lease rest that its successor does not have.
func (r *round) giveUp(old, successor *coe.Lease) {
	domain := r.cfg.domain(old.Namespace)
	for _, a := range old.Addresses {
		if successor.Has([]netip.Addr{a.Address}) && domain == r.cfg.domain(successor.Namespace) {
			continue
		}
		f := &journal.Former{
			PodUID: old.PodUID, InterfaceUID: old.InterfaceUID,
			Namespace: old.Namespace, Node: old.Node, Address: a, Released: old.Released,
		}
		if f.Released == 0 {
			f.Released = r.stamp()
		}
		if r.rests.note(journal.FormerRecord(f), f.Released); old.Released != 0 {
			r.rests.byRecord[journal.FormerRecord(f)] = r.rests.byRecord[journal.LeaseRecord(old.Key())]
		}
		r.alloc.Pass(domain, a.Address, journal.FormerRecord(f))
		r.addFormer(f)
		r.write.Put(journal.RankFormer, journal.FormerRecord(f), f, func(tx *state.Tx) { tx.PutFormer(f.Name(), f.Node) })
	}
}
