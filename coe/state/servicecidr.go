package state

import (
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// serviceCIDRs is what the Store keeps of ServiceCIDRs.
type serviceCIDRs struct {
	byUID  map[string]*coe.ServiceCIDR
	listed bool
}

// PutServiceCIDR adds or replaces ranges of the source Kubernetes.
func (tx *Tx) PutServiceCIDR(c *coe.ServiceCIDR) {
	tx.store.serviceCIDRs.byUID[c.UID] = c
	tx.cluster = true
}

// DeleteServiceCIDR deletes ranges of the source Kubernetes.
func (tx *Tx) DeleteServiceCIDR(uid string) {
	delete(tx.store.serviceCIDRs.byUID, uid)
	tx.cluster = true
}

// SetServiceCIDRsListed says whether all ServiceCIDRs are known.
func (tx *Tx) SetServiceCIDRsListed(listed bool) {
	if c := &tx.store.serviceCIDRs; c.listed != listed {
		c.listed, tx.cluster = listed, true
	}
}

// ServiceCIDRs returns the ServiceCIDRs, sorted by name. listed is false if there may be more.
func (s *Store) ServiceCIDRs() (all []*coe.ServiceCIDR, listed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all = slices.SortedFunc(maps.Values(s.serviceCIDRs.byUID), func(a, b *coe.ServiceCIDR) int { return strings.Compare(a.Name, b.Name) })
	return all, s.serviceCIDRs.listed
}
