package ipam

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
)

// claimService chooses an address of the pool "services" for a service that requests no cluster
// address.
func (r *round) claimService(s *space, svc *coe.Service) {
	if needsNone(svc) {
		return
	}
	if refusal := r.chooseService(s, svc); refusal != nil {
		s.service(svc.UID, refusal)
	}
}

// needsNone reports whether a service needs no address of the pool.
func needsNone(svc *coe.Service) bool { return svc == nil || svc.Headless || len(svc.ClusterIPs) > 0 }

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
			"the service requests no address; send cluster-ip-address, or post a dhcp_allocation_pool with network-id %q", coe.ServicePool)}
	}
	addr, err := r.alloc.AllocateSingle(serviceDomain, coe.ServicePool, journal.ServiceRecord(svc.UID))
	if err != nil {
		return &coe.Refusal{Reason: coe.PoolExhausted, Message: err.Error()}
	}
	r.putService(&coe.ServiceFact{UID: svc.UID, Namespace: s.name, Address: addr})
	return nil
}

// releaseServices releases the addresses of services that are deleted or no longer need one.
func (r *round) releaseServices(s *space) {
	for _, fact := range s.namespace.services {
		if fact.Released == 0 && needsNone(s.find(fact.UID)) {
			released := *fact
			released.Released = r.stamp()
			r.putService(&released)
		}
	}
}

// expireServices deletes released addresses of services whose rest is over.
func (r *round) expireServices(s *space) {
	var due []*coe.ServiceFact
	for _, fact := range s.namespace.services {
		if fact.Released != 0 && r.rests.over(journal.ServiceRecord(fact.UID), r.elapsed) && needsNone(s.find(fact.UID)) {
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

// find returns the service with a UID, or nil.
func (s *space) find(uid string) *coe.Service {
	n, found := slices.BinarySearchFunc(s.view.Services, uid, func(svc *coe.Service, uid string) int {
		return strings.Compare(svc.UID, uid)
	})
	if !found {
		return nil
	}
	return s.view.Services[n]
}
