package ipam

import (
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// release marks leases as released: their addresses rest, and the interface can get them again.
func (r *round) release(gone []*coe.Lease) {
	for _, l := range gone {
		released := *l
		released.Released = r.stamp()
		r.putLease(&released)
	}
}

// expire deletes released leases and former addresses whose rest is over. It keeps a lease whose
// interface has come back.
func (r *round) expire(s *space) {
	var due []*coe.Lease
	for _, l := range s.released {
		if r.rests.over(journal.LeaseRecord(l.Key()), r.elapsed) && !s.back(l) {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, compareLeases)
	for _, l := range due {
		for _, a := range l.Addresses {
			r.alloc.Release(s.domain, a.Address)
		}
		r.deleteLease(l)
		r.freed = true
	}
	r.expireFormers(s)
	r.expireServices(s)
}

// back reports whether the interface of a released lease exists again, unchanged.
func (s *space) back(l *coe.Lease) bool {
	p := s.pod(l.PodUID)
	return p != nil && canPlug(p) && slices.ContainsFunc(p.AllInterfaces(), func(i coe.PodInterface) bool {
		return i.UID == l.InterfaceUID && fits(l, p, i)
	})
}

func (r *round) expireFormers(s *space) {
	var due []*journal.Former
	for _, formers := range s.formers {
		for _, f := range formers {
			if r.rests.over(journal.FormerRecord(f), r.elapsed) {
				due = append(due, f)
			}
		}
	}
	slices.SortFunc(due, func(a, b *journal.Former) int {
		return strings.Compare(journal.FormerRecord(a), journal.FormerRecord(b))
	})
	for _, f := range due {
		r.alloc.Release(s.domain, f.Address.Address)
		r.deleteFormer(f)
		r.freed = true
	}
}

// followDHCP gives blocks the same DHCP settings as their pools.
func (r *round) followDHCP() {
	for network := range r.repooled {
		for b := range r.otherDHCP(network) {
			r.putBlock(blockFact{r.withDHCP(*b.Block), b.namespace})
		}
	}
	clear(r.repooled)
}

// sweep deletes unused blocks and instances, and reports whether any record was deleted.
func (r *round) sweep() (swept bool) {
	for _, key := range r.orphans {
		if r.write.Has(key) {
			continue // for example a node that has got a number of the present network
		}
		r.write.Remove(journal.RankDeleteInstance, key, nil)
		swept = true
	}
	r.orphans = nil
	for key, e := range r.unused {
		if fact, found := r.blocks[key]; found && fact.Shared.IsValid() && e.uses[key.prefix] == 0 {
			r.deleteBlock(fact)
			swept = true
		}
	}
	r.unused = map[blockKey]*elan{} // a cleared map takes as long to walk as when it was full
	for _, b := range r.alloc.Sweep() {
		if fact, found := r.blocks[blockKey{b.ELAN.Name, b.Prefix}]; found && !fact.Shared.IsValid() {
			r.deleteBlock(fact)
			swept = true
		}
	}
	for e := range r.idle {
		swept = r.sweepELAN(e) || swept
	}
	r.idle = map[*elan]bool{}
	return swept
}

// sweepELAN releases the identifiers of an unused elan. It also releases the identifiers of its
// vpn-instance if no other elan uses it.
func (r *round) sweepELAN(e *elan) (swept bool) {
	ns := e.namespace
	delete(ns.elans, e.node)
	if delete(r.elansOn[e.node], e); len(r.elansOn[e.node]) == 0 {
		delete(r.elansOn, e.node)
	}
	fact, found := r.elans[e.Name]
	if found && fact.namespace != ns.name {
		found = false // it belongs to another namespace
	} else {
		r.vnis.Release(e.Name)
	}
	if found {
		delete(r.elans, e.Name)
		r.write.Remove(journal.RankDeleteInstance, journal.ELANRecord(e.Name), func(tx *state.Tx) { tx.DeleteELAN(ns.name, e.Name) })
		swept = true
	}
	if len(ns.elans) > 0 {
		return swept
	}
	if owner := r.vpnOwners[r.vpnName(ns.name)]; owner == "" || owner == ns.name {
		r.rds.Release(r.vpnName(ns.name))
	}
	delete(r.adoptedVPNs, ns.name)
	if vpn := r.vpns[ns.name]; vpn != nil {
		delete(r.vpns, ns.name)
		delete(r.vpnOwners, vpn.Name)
		r.write.Remove(journal.RankDeleteInstance, journal.VPNRecord(vpn.Name), func(tx *state.Tx) { tx.DeleteVPN(ns.name) })
		swept = true
	}
	return swept
}
