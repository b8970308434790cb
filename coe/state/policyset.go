package state

import (
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// policyState is what the Store keeps to build the PolicySet.
type policyState struct {
	set *coe.PolicySet // nil: to be built
	// labels are the labels of the namespaces that have some, by name.
	labels map[string]coe.Labels
	// ports counts the pods that have a named port, by namespace.
	ports map[coe.ContainerPort]map[string]int
	// users counts the uses of a named port in rules, by the namespace of the policy.
	users map[coe.NamedPort]map[string]int
	// named counts the pods and the Namespaces that name a security profile, by namespace.
	named map[string]map[string]int
	// numbers counts the numbers that pods of a namespace, or of all, have for a named port.
	numbers map[coe.NamedPort]int
	// uses has what each policy of a namespace needs of the limits for all its policies, and limited
	// what stands for the policies that exceed one, by namespace.
	uses    map[*coe.PolicySpec]*coe.PolicyUse
	limited map[string]map[*coe.PolicySpec]coe.LimitedPolicy
	// unlisted has the origins that say apart whether their policies are complete: true if not.
	unlisted map[coe.Origin]bool
}

// policySet returns the current PolicySet. The caller holds the lock.
func (s *Store) policySet() *coe.PolicySet {
	if s.policy.set != nil {
		return s.policy.set
	}
	set := &coe.PolicySet{
		Namespaces: maps.Clone(s.policy.labels),
		NamedPorts: map[coe.NamedPort][]uint16{},
		Profiles:   map[string][]string{},
		Unknown:    map[string]bool{},
		Complete:   s.policiesComplete(),
		EgressIPs:  s.egress.ips,
	}
	for name, ns := range s.namespaces {
		for uid, p := range ns.policies {
			if limited, found := s.policy.limited[name][p]; found {
				p = limited.PolicySpec
				exceed(set, uid, limited.Limit)
			}
			set.Policies = append(set.Policies, p)
		}
	}
	for name, namespaces := range s.policy.named {
		set.Profiles[name], set.Unknown[name] = slices.Sorted(maps.Keys(namespaces)), true
	}
	for _, p := range s.policies {
		set.Policies = append(set.Policies, p)
		delete(set.Unknown, p.Pods.Profile())
	}
	for name := range set.Unknown {
		set.Policies = append(set.Policies, coe.UnknownProfile(name))
	}
	slices.SortFunc(set.Policies, (*coe.PolicySpec).Compare)
	for p, namespaces := range s.policy.ports {
		name := coe.NamedPort{Name: p.Name, Protocol: p.Protocol}
		users := s.policy.users[name]
		if len(users) == 0 {
			continue
		}
		set.NamedPorts[name] = append(set.NamedPorts[name], p.Port)
		for name.Namespace = range namespaces {
			if users[name.Namespace] > 0 {
				set.NamedPorts[name] = append(set.NamedPorts[name], p.Port)
			}
		}
	}
	for _, numbers := range set.NamedPorts {
		slices.Sort(numbers)
	}
	s.policy.set = set
	return set
}

func exceed(s *coe.PolicySet, uid, limit string) {
	if s.Excess == nil {
		s.Excess = map[string]string{}
	}
	s.Excess[uid] = limit
}

// PoliciesComplete reports whether PolicySet.Complete is set.
func (s *Store) PoliciesComplete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.policiesComplete()
}

// policiesComplete is PoliciesComplete. The caller holds the lock.
func (s *Store) policiesComplete() bool {
	for origin := range s.incomplete {
		if _, apart := s.policy.unlisted[origin]; !apart {
			return false
		}
	}
	for _, unlisted := range s.policy.unlisted {
		if unlisted {
			return false
		}
	}
	return true
}

// stalePolicies has the PolicySet built again, and marks the cluster as changed.
func (tx *Tx) stalePolicies() {
	tx.store.policy.set = nil
	tx.policies = true
}

// usePolicy follows that a policy applies (by is 1), or no longer applies (-1). It marks the
// namespaces with pods that the policy may select as peers, or that name it as a security profile.
func (tx *Tx) usePolicy(p *coe.PolicySpec, by int) {
	tx.stalePolicies()
	tx.markNaming(p.Pods.Profile())
	for rule := range p.Rules() {
		for _, port := range rule.Ports {
			if port.Name != "" {
				tx.store.policy.use(coe.NamedPort{Name: port.Name, Protocol: port.Protocol}, p.Namespace, by)
			}
		}
	}
	tx.markDestinations(p)
	if p.Namespace == "" {
		return
	}
	tx.limited[p.Namespace] = true
	if uses := tx.store.policy.uses; by > 0 {
		uses[p] = coe.NewPolicyUse(p)
	} else {
		delete(uses, p)
	}
}

// markDestinations marks the namespaces with pods that a rule of a policy may mean as its peers, or
// as the destinations of a named port.
func (tx *Tx) markDestinations(p *coe.PolicySpec) {
	tx.markPeers(p)
	if slices.ContainsFunc(p.Egress.Rules, namesPorts) {
		tx.markSelected(&coe.Selector{})
	}
}

// markPeers marks the namespaces with pods that a policy may select as peers.
func (tx *Tx) markPeers(p *coe.PolicySpec) {
	for rule := range p.Rules() {
		for i := range rule.Peers {
			peer := &rule.Peers[i]
			if profile := peer.Pods.Profile(); profile != "" {
				tx.markNaming(profile)
			} else if peer.Block == nil && peer.Namespaces != nil {
				tx.markSelected(peer.Namespaces)
			}
		}
	}
}

// namesPorts reports whether an egress rule is about a named port of pods that a block of addresses
// selects, or of all pods. They can be in any namespace.
func namesPorts(r coe.PolicyRule) bool {
	isBlock := func(p coe.PolicyPeer) bool { return p.Block != nil }
	return slices.ContainsFunc(r.Ports, func(p coe.PolicyPort) bool { return p.Name != "" }) &&
		(len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, isBlock))
}

func (s *policyState) use(port coe.NamedPort, namespace string, by int) {
	count(s.users, port, namespace, by)
}

// count changes the number of uses of a key in a namespace, and reports whether it was or is 0.
func count[K comparable](all map[K]map[string]int, key K, namespace string, by int) (isEdge bool) {
	uses := all[key]
	if uses == nil {
		uses = map[string]int{}
		all[key] = uses
	}
	before := uses[namespace]
	uses[namespace] = before + by
	if uses[namespace] == 0 {
		delete(uses, namespace)
	}
	if len(uses) == 0 {
		delete(all, key)
	}
	return before == 0 || before+by == 0
}

// countProfiles follows a change of the security profiles that a pod names, which may be nil.
func (tx *Tx) countProfiles(old, now *coe.Pod) {
	if old != nil && now != nil && old.Labels == now.Labels && old.Namespace == now.Namespace {
		return
	}
	if now != nil {
		tx.nameProfiles(now.Namespace, now.Labels, +1)
	}
	if old != nil {
		tx.nameProfiles(old.Namespace, old.Labels, -1)
	}
}

// nameProfiles follows that an object of a namespace with labels names their security profiles
// (by is 1), or no longer names them (-1). The remote groups of an access list have members while
// the list is named.
func (tx *Tx) nameProfiles(namespace string, labels coe.Labels, by int) {
	for name := range labels.Profiles() {
		if count(tx.store.policy.named, name, namespace, by) {
			tx.stalePolicies()
			for _, p := range tx.store.policies {
				if p.Pods.Profile() == name {
					tx.markPeers(p)
				}
			}
		}
	}
}

// markNaming marks the namespaces that name a security profile.
func (tx *Tx) markNaming(profile string) {
	for name := range tx.store.policy.named[profile] {
		tx.dirty[name] = true
	}
}

// markSelected marks the namespaces with pods that have the labels of a selector.
func (tx *Tx) markSelected(namespaces *coe.Selector) {
	reported := coe.PolicySet{Namespaces: tx.store.policy.labels}
	for name, ns := range tx.store.namespaces {
		if len(ns.pods) > 0 && !tx.dirty[name] && namespaces.Matches(reported.LabelsOf(name)) {
			tx.dirty[name] = true
		}
	}
}

// relabelNamespace sets the labels of a namespace.
func (tx *Tx) relabelNamespace(name string, labels coe.Labels) {
	known := tx.store.policy.labels
	if known[name] == labels {
		return
	}
	tx.nameProfiles(name, labels, +1)
	tx.nameProfiles(name, known[name], -1)
	if known[name] = labels; labels == (coe.Labels{}) {
		delete(known, name)
	}
	tx.stalePolicies()
	if tx.store.namespaces[name] != nil {
		tx.dirty[name] = true
	}
}

// countPorts follows a change of the named ports of a pod, which may be nil.
func (tx *Tx) countPorts(old, now *coe.Pod) {
	before, after := namedPorts(old), namedPorts(now)
	if before == after && (old == nil || now == nil || old.Namespace == now.Namespace) {
		return
	}
	for port := range after.All() {
		tx.countPort(port, now.Namespace, +1)
	}
	for port := range before.All() {
		tx.countPort(port, old.Namespace, -1)
	}
}

// namedPorts returns the named ports of a pod that rules may mean.
func namedPorts(p *coe.Pod) coe.ContainerPorts {
	if p == nil || p.NoNetwork {
		return coe.ContainerPorts{}
	}
	return p.Ports
}

// countPort marks the namespaces of the policies that use the name of a port, if it is the first
// or the last of its number; the pod's own namespace also if it is so within the namespace.
func (tx *Tx) countPort(port coe.ContainerPort, namespace string, by int) {
	ports := tx.store.policy.ports
	before := len(ports[port])
	if !count(ports, port, namespace, by) {
		return
	}
	name := coe.NamedPort{Name: port.Name, Protocol: port.Protocol}
	everywhere := before == 0 || len(ports[port]) == 0
	if everywhere {
		tx.countNumber(name, by)
	}
	for ns := range tx.store.policy.users[name] {
		if everywhere || ns == namespace {
			tx.stalePolicies()
			tx.dirty[ns], tx.limited[ns] = true, true
		}
	}
	name.Namespace = namespace
	tx.countNumber(name, by)
}

// countNumber follows that the pods of a namespace, or of all, have one number more (by is 1) or less
// (-1) for a named port.
func (tx *Tx) countNumber(name coe.NamedPort, by int) {
	numbers := tx.store.policy.numbers
	if numbers[name] += by; numbers[name] == 0 {
		delete(numbers, name)
	}
}
