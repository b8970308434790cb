package coe

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// policyState is what the Store keeps to build the PolicySet.
type policyState struct {
	set *PolicySet // nil: to be built
	// labels are the labels of the namespaces that have some, by name.
	labels map[string]Labels
	// ports counts the pods that have a named port.
	ports map[ContainerPort]int
	// users counts the uses of a named port in rules, by the namespace of the policy.
	users map[NamedPort]map[string]int
	// unlisted has the origins that have not reported all their policies.
	unlisted map[Origin]bool
}

// policySet returns the current PolicySet. The caller holds the lock.
func (s *Store) policySet() *PolicySet {
	if s.policy.set != nil {
		return s.policy.set
	}
	set := &PolicySet{
		Namespaces: maps.Clone(s.policy.labels),
		NamedPorts: map[NamedPort][]uint16{},
		Complete:   s.policiesComplete(),
	}
	for _, ns := range s.namespaces {
		for _, p := range ns.policies {
			if p.Kind == NetworkPolicy {
				set.Policies = append(set.Policies, p)
			}
		}
	}
	slices.SortFunc(set.Policies, func(a, b *PolicySpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for p := range s.policy.ports {
		if name := (NamedPort{p.Name, p.Protocol}); len(s.policy.users[name]) > 0 {
			set.NamedPorts[name] = append(set.NamedPorts[name], p.Port)
		}
	}
	for _, numbers := range set.NamedPorts {
		slices.Sort(numbers)
	}
	s.policy.set = set
	return set
}

// PoliciesComplete reports whether PolicySet.Complete is set.
func (s *Store) PoliciesComplete() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.policiesComplete()
}

// policiesComplete is PoliciesComplete. The caller holds the lock.
func (s *Store) policiesComplete() bool { return len(s.incomplete)+len(s.policy.unlisted) == 0 }

// LabelsOf returns the labels of a namespace. A namespace that no source reports has the label that
// every namespace of Kubernetes has.
func (s *PolicySet) LabelsOf(namespace string) Labels { return labelsOf(s.Namespaces, namespace) }

func labelsOf(reported map[string]Labels, namespace string) Labels {
	if labels, found := reported[namespace]; found {
		return labels
	}
	return NewLabels(map[string]string{namespaceLabel: namespace})
}

// namespaceLabel is the label with the name of the namespace.
const namespaceLabel = "kubernetes.io/metadata.name"

// stalePolicies has the PolicySet built again, and marks the cluster as changed.
func (tx *Tx) stalePolicies() {
	tx.store.policy.set = nil
	tx.policies = true
}

// usePolicy follows that a policy applies (by is 1), or no longer applies (-1). It marks the
// namespaces with pods that the policy may select as peers.
func (tx *Tx) usePolicy(p *PolicySpec, by int) {
	if p.Kind != NetworkPolicy {
		return
	}
	tx.stalePolicies()
	for rule := range p.rules() {
		for _, port := range rule.Ports {
			if port.Name != "" {
				tx.store.policy.use(NamedPort{port.Name, port.Protocol}, p.Namespace, by)
			}
		}
		for i := range rule.Peers {
			if peer := &rule.Peers[i]; peer.Block == nil && peer.Namespaces != nil {
				tx.markSelected(peer.Namespaces)
			}
		}
	}
	if slices.ContainsFunc(p.Egress.Rules, PolicyRule.namesPorts) {
		tx.markSelected(&Selector{})
	}
}

// namesPorts reports whether an egress rule is about a named port of pods that a block of addresses
// selects, or of all pods. They can be in any namespace.
func (r PolicyRule) namesPorts() bool {
	isBlock := func(p PolicyPeer) bool { return p.Block != nil }
	return slices.ContainsFunc(r.Ports, func(p PolicyPort) bool { return p.Name != "" }) &&
		(len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, isBlock))
}

// rules returns the rules of both directions.
func (p *PolicySpec) rules() iter.Seq[*PolicyRule] {
	return func(yield func(*PolicyRule) bool) {
		for _, side := range []*PolicySide{&p.Ingress, &p.Egress} {
			for i := range side.Rules {
				if !yield(&side.Rules[i]) {
					return
				}
			}
		}
	}
}

func (s *policyState) use(port NamedPort, namespace string, by int) {
	users := s.users[port]
	if users == nil {
		users = map[string]int{}
		s.users[port] = users
	}
	users[namespace] += by
	if users[namespace] == 0 {
		delete(users, namespace)
	}
	if len(users) == 0 {
		delete(s.users, port)
	}
}

// markSelected marks the namespaces with pods that have the labels of a selector.
func (tx *Tx) markSelected(namespaces *Selector) {
	for name, ns := range tx.store.namespaces {
		if len(ns.pods) > 0 && !tx.dirty[name] && namespaces.Matches(labelsOf(tx.store.policy.labels, name)) {
			tx.dirty[name] = true
		}
	}
}

// relabelNamespace sets the labels of a namespace.
func (tx *Tx) relabelNamespace(name string, labels Labels) {
	known := tx.store.policy.labels
	if known[name] == labels {
		return
	}
	if known[name] = labels; labels == (Labels{}) {
		delete(known, name)
	}
	tx.stalePolicies()
	if tx.store.namespaces[name] != nil {
		tx.dirty[name] = true
	}
}

// countPorts follows a change of the named ports of a pod, which may be nil.
func (tx *Tx) countPorts(old, now *Pod) {
	before, after := old.ports(), now.ports()
	if before == after {
		return
	}
	for port := range after.All() {
		tx.countPort(port, +1)
	}
	for port := range before.All() {
		tx.countPort(port, -1)
	}
}

// ports returns the named ports of a pod that rules may mean.
func (p *Pod) ports() ContainerPorts {
	if p == nil || p.NoNetwork {
		return ContainerPorts{}
	}
	return p.Ports
}

// countPort marks the namespaces of the policies that use the name of a port, if it is the first
// or the last of its number.
func (tx *Tx) countPort(port ContainerPort, by int) {
	ports := tx.store.policy.ports
	before := ports[port]
	if ports[port] = before + by; ports[port] == 0 {
		delete(ports, port)
	}
	users := tx.store.policy.users[NamedPort{port.Name, port.Protocol}]
	if len(users) == 0 || before > 0 && before+by > 0 {
		return
	}
	tx.stalePolicies()
	for ns := range users {
		tx.dirty[ns] = true
	}
}
