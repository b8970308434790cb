package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// claimService gives a service that brings no cluster address one from the pool
// "services", and notes the one that it brings.
func (r *round) claimService(s *space, svc *coe.Service) {
	r.say(s.name, svc.UID, svc.ClusterIPs)
	for _, addr := range svc.ClusterIPs {
		if refusal := r.sayAddress(addr); refusal != nil {
			s.service(svc.UID, refusal)
		}
	}
	if needsNone(svc) {
		return
	}
	if refusal := r.chooseService(s, svc); refusal != nil {
		s.service(svc.UID, refusal)
	}
}

// needsNone tells whether a service is to have no address of the pool.
func needsNone(svc *coe.Service) bool { return svc == nil || svc.Headless || len(svc.ClusterIPs) > 0 }

// sayAddress keeps a cluster address that a source gave from being chosen.
func (r *round) sayAddress(addr netip.Addr) *coe.Refusal {
	owner := r.alloc.Owner(serviceDomain, addr)
	switch {
	case owner == "":
		r.alloc.Hold(serviceDomain, addr, saidOwner(addr))
	case owner != saidOwner(addr):
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", addr, r.holder(owner))}
	}
	return nil
}

func (r *round) chooseService(s *space, svc *coe.Service) *coe.Refusal {
	if old := r.services[svc.UID]; old != nil {
		if old.Released != 0 || old.Namespace != s.name {
			fact := *old
			fact.Released, fact.Namespace = 0, s.name
			r.putService(&fact)
		}
		return nil
	}
	if _, found := r.alloc.Serving(coe.ServicePool); !found {
		if len(svc.ExternalIPs) > 0 {
			return nil
		}
		return &coe.Refusal{Reason: coe.NoClusterIP, Message: fmt.Sprintf(
			"the service brings no address; send cluster-ip-address, or post a dhcp_allocation_pool with network-id %q", coe.ServicePool)}
	}
	addr, err := r.alloc.AllocateSingle(serviceDomain, coe.ServicePool, serviceRecord(svc.UID))
	if err != nil {
		return &coe.Refusal{Reason: coe.PoolExhausted, Message: err.Error()}
	}
	r.putService(&coe.ServiceFact{UID: svc.UID, Namespace: s.name, Address: addr})
	return nil
}

// releaseServices marks the addresses of services that are gone or need none
// any more as released, and forgets what gone services brought.
func (r *round) releaseServices(s *space) {
	for _, fact := range s.namespace.services {
		if fact.Released == 0 && needsNone(s.find(fact.UID)) {
			released := *fact
			released.Released = r.stamp()
			r.putService(&released)
		}
	}
	for uid := range r.said[s.name] {
		if s.find(uid) == nil {
			r.say(s.name, uid, nil)
		}
	}
}

// expireServices deletes addresses of services that have rested long enough.
func (r *round) expireServices(s *space) {
	var due []*coe.ServiceFact
	for _, fact := range s.namespace.services {
		if fact.Released != 0 && r.over(fact.Released) && needsNone(s.find(fact.UID)) {
			due = append(due, fact)
		}
	}
	slices.SortFunc(due, func(a, b *coe.ServiceFact) int { return strings.Compare(a.UID, b.UID) })
	for _, fact := range due {
		r.alloc.Release(serviceDomain, fact.Address)
		r.deleteService(fact)
		r.freed = true
	}
}

// find returns the service of a uid, nil when there is none.
func (s *space) find(uid string) *coe.Service {
	n, found := slices.BinarySearchFunc(s.view.Services, uid, func(svc *coe.Service, uid string) int {
		return strings.Compare(svc.UID, uid)
	})
	if !found {
		return nil
	}
	return s.view.Services[n]
}

// say notes the cluster addresses that a source gave to a service, so that
// nobody is given them.
func (r *round) say(ns, uid string, addrs []netip.Addr) {
	before := r.said[ns][uid]
	if slices.Equal(before, addrs) {
		return
	}
	if r.said[ns] == nil {
		r.said[ns] = map[string][]netip.Addr{}
	}
	r.said[ns][uid] = addrs
	for _, a := range addrs {
		r.saidBy[a]++
		r.noteReach(a)
	}
	for _, a := range before {
		r.unsay(a)
	}
	if len(addrs) == 0 {
		delete(r.said[ns], uid)
	}
	if len(r.said[ns]) == 0 {
		delete(r.said, ns)
	}
}

// unsay notes that one service less has a cluster address.
func (r *round) unsay(addr netip.Addr) {
	if r.saidBy[addr]--; r.saidBy[addr] > 0 {
		return
	}
	delete(r.saidBy, addr)
	if r.alloc.Owner(serviceDomain, addr) == saidOwner(addr) {
		r.alloc.Release(serviceDomain, addr)
		r.freed = true
	}
}
