package ipam

import (
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// refused has the refusals of a namespace.
type refused struct {
	leases   map[coe.LeaseKey]coe.Refusal
	services map[string]coe.Refusal
}

// Reasons that can disappear when an address becomes free, or when the pools change.
var (
	healedByRoom  = []coe.Reason{coe.PoolExhausted, coe.AddressTaken, coe.AddressInvalid, coe.IDsExhausted, coe.NameTaken, coe.TooLarge}
	healedByPools = []coe.Reason{coe.PoolExhausted, coe.AddressInvalid, coe.NoAddress, coe.NoClusterIP}
)

func (f *refused) any(reasons []coe.Reason) bool {
	for _, r := range f.leases {
		if slices.Contains(reasons, r.Reason) {
			return true
		}
	}
	for _, r := range f.services {
		if slices.Contains(reasons, r.Reason) {
			return true
		}
	}
	return false
}

func (f *refused) lease(key coe.LeaseKey, why *coe.Refusal) {
	if f.leases == nil {
		f.leases = map[coe.LeaseKey]coe.Refusal{}
	}
	f.leases[key] = *why
}

// maxRefusal is the approximate largest length of the message of a service's refusals.
const maxRefusal = 500

// service notes why a service does not have an address. If it has several refusals, it keeps the
// first reason and joins the messages.
func (f *refused) service(uid string, why *coe.Refusal) {
	if f.services == nil {
		f.services = map[string]coe.Refusal{}
	}
	had, found := f.services[uid]
	switch {
	case !found:
		had = *why
	case len(had.Message) < maxRefusal:
		had.Message += "; " + why.Message
	}
	f.services[uid] = had
}

// changedRefusals returns the refusals of this round that differ from those in the store.
func (r *round) changedRefusals() map[string]*refused {
	changed := map[string]*refused{}
	for _, s := range r.spaces {
		had := r.waiting[s.name]
		if had == nil {
			had = &refused{}
		}
		if maps.Equal(had.leases, s.leases) && maps.Equal(had.services, s.refused.services) {
			continue
		}
		changed[s.name] = &s.refused
		if r.waiting[s.name] = &s.refused; len(s.leases)+len(s.refused.services) == 0 {
			delete(r.waiting, s.name)
		}
	}
	return changed
}
