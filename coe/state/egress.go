package state

import (
	"reflect"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

// egressState is what the Store keeps of egress addresses.
type egressState struct {
	specs    map[string]*coe.EgressSpec // by UID
	listed   bool
	ips      []*coe.EgressIP // replaced, never changed
	problems []coe.Problem   // replaced, never changed
}

// PutEgressSpec adds or replaces what the source Kubernetes requests.
func (tx *Tx) PutEgressSpec(s *coe.EgressSpec) {
	tx.store.egress.specs[s.UID] = s
	tx.egress = true
}

// DeleteEgressSpec deletes what the source Kubernetes requests.
func (tx *Tx) DeleteEgressSpec(uid string) {
	delete(tx.store.egress.specs, uid)
	tx.egress = true
}

// SetEgressListed says whether all EgressSpecs are known.
func (tx *Tx) SetEgressListed(listed bool) {
	if e := &tx.store.egress; e.listed != listed {
		e.listed, tx.egress = listed, true
	}
}

// EgressSpecs returns what the source requests: the oldest first, then by name. listed is false if there may be more.
func (s *Store) EgressSpecs() (specs []*coe.EgressSpec, listed bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.egress.specs {
		specs = append(specs, e)
	}
	slices.SortFunc(specs, func(a, b *coe.EgressSpec) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return specs, s.egress.listed
}

// EgressSpec returns what the source requests by a UID; nil if there is none.
func (s *Store) EgressSpec(uid string) *coe.EgressSpec {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.egress.specs[uid]
}

// SetEgress replaces the EgressIPs, sorted by name, and their problems.
func (tx *Tx) SetEgress(ips []*coe.EgressIP, problems []coe.Problem) {
	e := &tx.store.egress
	if !slices.EqualFunc(e.ips, ips, sameSelection) {
		tx.stalePolicies()
		for _, one := range slices.Concat(e.ips, ips) {
			tx.markSelected(&one.Namespaces)
		}
	}
	e.ips, e.problems, tx.cluster = ips, problems, true
}

func sameSelection(a, b *coe.EgressIP) bool {
	return a.Name == b.Name && a.Number == b.Number && reflect.DeepEqual(a.Namespaces, b.Namespaces) && reflect.DeepEqual(a.Pods, b.Pods)
}

// EgressIPs returns the EgressIPs, sorted by name.
func (s *Store) EgressIPs() []*coe.EgressIP {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.egress.ips
}
