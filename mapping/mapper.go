package mapping

import (
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Mapper maps scopes repeatedly, with the results of Scope. It keeps what it has mapped of each namespace, and maps only the
// pods and elan-instances again whose values have changed. It compares pointers: a store replaces its values and never changes
// them. Only one goroutine at a time may use a Mapper.
type Mapper struct {
	store    Store
	settings Settings
	mapped   map[netvirt.Scope]*mapped
	nodes    mappedNodes
	policies *policies // of the last PolicySet
}

// NewMapper returns a Mapper for the scopes of a store.
func NewMapper(store Store, s Settings) *Mapper {
	return &Mapper{store: store, settings: s, mapped: map[netvirt.Scope]*mapped{}}
}

// Scope maps one scope, like the function Scope.
func (m *Mapper) Scope(scope netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	if scope == netvirt.Cluster {
		v := m.store.Cluster()
		return mapCluster(v, m.settings, m.compiled(v.PolicySet), &m.nodes)
	}
	return m.Map(m.store.View(string(scope)))
}

// Map maps one namespace, like the function Map. The parts of unchanged interfaces are the
// same pointers as in the last result.
func (m *Mapper) Map(v coe.View) (netvirt.Parts, []coe.Problem) {
	scope := netvirt.Scope(v.Namespace)
	before := m.mapped[scope]
	if before == nil {
		before = newMapped()
	}
	b := newBuilder(v, m.settings, before, m.compiled(v.PolicySet))
	b.build()
	if m.mapped[scope] = b.mapped; len(b.elans) == 0 {
		delete(m.mapped, scope)
	}
	return b.parts, b.problems
}

// compiled returns the policies of a PolicySet. Scopes that are mapped with the same set share them.
func (m *Mapper) compiled(set *coe.PolicySet) *policies {
	if m.policies == nil || m.policies.set != set {
		m.policies = m.settings.compile(set)
	}
	return m.policies
}
