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
	r.say(s.name, svc.UID, svc.ClusterIP)
	var refusal *coe.Refusal
	switch {
	case svc.ClusterIP.IsValid():
		refusal = r.sayAddress(svc.ClusterIP)
	case !svc.Headless:
		refusal = r.chooseService(s, svc)
	}
	if refusal != nil {
		s.service(svc.UID, refusal)
	}
}

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
		if svc := s.find(fact.UID); fact.Released == 0 && (svc == nil || svc.Headless || svc.ClusterIP.IsValid()) {
			released := *fact
			released.Released = r.stamp()
			r.putService(&released)
		}
	}
	for uid := range r.said[s.name] {
		if s.find(uid) == nil {
			r.say(s.name, uid, netip.Addr{})
		}
	}
}

// expireServices deletes addresses of services that have rested long enough.
func (r *round) expireServices(s *space) {
	var due []*coe.ServiceFact
	for _, fact := range s.namespace.services {
		if svc := s.find(fact.UID); fact.Released != 0 && r.over(fact.Released) &&
			(svc == nil || svc.Headless || svc.ClusterIP.IsValid()) {
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

// say notes the cluster address that a source gave to a service, or the zero
// address for none, so that nobody is given it.
func (r *round) say(ns, uid string, addr netip.Addr) {
	before := r.said[ns][uid]
	if before == addr {
		return
	}
	if before.IsValid() {
		delete(r.said[ns], uid)
		if r.saidBy[before]--; r.saidBy[before] == 0 {
			delete(r.saidBy, before)
			if r.alloc.Owner(serviceDomain, before) == saidOwner(before) {
				r.alloc.Release(serviceDomain, before)
				r.freed = true
			}
		}
	}
	if len(r.said[ns]) == 0 {
		delete(r.said, ns)
	}
	if addr.IsValid() {
		if r.said[ns] == nil {
			r.said[ns] = map[string]netip.Addr{}
		}
		r.said[ns][uid] = addr
		r.saidBy[addr]++
	}
}
