package mapping

import (
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Mapper maps the same scopes again and again, with the results of Scope. It
// keeps what it made of each lease and makes it anew only when something that
// it was made of is another value: a store's values are never changed, so the
// pointers tell. It is for one goroutine.
type Mapper struct {
	store    *coe.Store
	settings Settings
	made     map[netvirt.Scope]map[*coe.Lease]*attachment
}

// NewMapper returns a Mapper of a store's scopes.
func NewMapper(store *coe.Store, s Settings) *Mapper {
	return &Mapper{store, s, map[netvirt.Scope]map[*coe.Lease]*attachment{}}
}

// Scope maps one scope, like the function of that name.
func (m *Mapper) Scope(scope netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	if scope == netvirt.Cluster {
		return Cluster(m.store.Nodes(), m.settings).Parts(), nil
	}
	return m.Map(m.store.View(string(scope)))
}

// Map maps one namespace, like the function of that name. The parts of interfaces
// of which nothing has changed are those of the last time.
func (m *Mapper) Map(v coe.View) (netvirt.Parts, []coe.Problem) {
	scope := netvirt.Scope(v.Namespace)
	b := newBuilder(v, m.settings)
	b.before, b.after = m.made[scope], make(map[*coe.Lease]*attachment, len(v.Leases))
	parts, problems := b.build()
	m.made[scope] = b.after
	if len(b.after) == 0 {
		delete(m.made, scope)
	}
	return parts, problems
}

// attachment is what was made of a lease.
type attachment struct {
	basis
	*netvirt.Part
}

// basis is what an interface's objects are made of beside its lease.
type basis struct {
	vpn    *coe.VPNFact
	node   *coe.Node     // nil where it is not known
	blocks [2]*coe.Block // of the lease's addresses, one of a family
}
