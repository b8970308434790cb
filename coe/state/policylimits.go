package state

import "github.com/coe-bridge/coe-bridge/coe"

// limitPolicies finds the policies of the marked namespaces that exceed a limit for their namespace. If
// a policy exceeds one now, or no longer, its peers have other memberships.
func (tx *Tx) limitPolicies() {
	s := tx.store
	for name := range tx.limited {
		var policies []*coe.PolicySpec
		if ns := s.namespaces[name]; ns != nil {
			for _, p := range ns.policies {
				policies = append(policies, p)
			}
		}
		before := s.policy.limited[name]
		now := coe.LimitedPolicies(policies, func(p *coe.PolicySpec) *coe.PolicyUse { return s.policy.uses[p] }, func(n coe.NamedPort) int { return s.policy.numbers[n] })
		for _, p := range policies {
			if before[p].Limit != now[p].Limit {
				tx.stalePolicies()
				tx.dirty[name] = true
				tx.markDestinations(p)
			}
		}
		if s.policy.limited[name] = now; len(now) == 0 {
			delete(s.policy.limited, name)
		}
	}
}
