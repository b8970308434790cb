package mapping

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Mapper maps scopes repeatedly, with the results of Scope. It keeps the objects of each
// interface, and reuses them if the values that they were made from are the same. It
// compares pointers: a store replaces its values and never changes them. Only one
// goroutine at a time may use a Mapper.
type Mapper struct {
	store    *coe.Store
	settings Settings
	mapped   map[netvirt.Scope]*mapped
	policies *policies // of the last PolicySet
}

// NewMapper returns a Mapper for the scopes of a store.
func NewMapper(store *coe.Store, s Settings) *Mapper {
	return &Mapper{store: store, settings: s, mapped: map[netvirt.Scope]*mapped{}}
}

// Scope maps one scope, like the function Scope.
func (m *Mapper) Scope(scope netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	if scope == netvirt.Cluster {
		v := m.store.Cluster()
		model, problems := mapCluster(v, m.settings, m.compiled(v.PolicySet))
		return model.Parts(), problems
	}
	return m.Map(m.store.View(string(scope)))
}

// Map maps one namespace, like the function Map. The parts of unchanged interfaces are the
// same pointers as in the last result.
func (m *Mapper) Map(v coe.View) (netvirt.Parts, []coe.Problem) {
	scope := netvirt.Scope(v.Namespace)
	b := newBuilder(v, m.settings, cmp.Or(m.mapped[scope], &mapped{}), m.compiled(v.PolicySet))
	b.build()
	m.mapped[scope] = &mapped{vpn: v.VPN, policies: b.policies, elans: b.elans, attached: b.attached, parts: b.parts}
	if len(b.attached) == 0 {
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

// mapped is the result of mapping a namespace.
type mapped struct {
	vpn      *coe.VPNFact
	policies *namespacePolicies
	elans    map[netip.Addr]*elan
	attached []placed // sorted by the pod's UID
	parts    netvirt.Parts
}

// placed is an interface in an elan-instance.
type placed struct {
	*attached
	elan *elan
}

// attached is an interface in the model, with the values that its objects are made from. Later
// mappings share it.
type attached struct {
	pod    *coe.Pod
	lease  *coe.Lease
	iface  *coe.PodInterface
	blocks [2]*coe.Block // of the lease's addresses, at most one of each family
	seq    uint64        // the lease's
	// membership is nil if no policy means anything for the namespace, or the backend has no ACLs.
	membership *membership
	// complete: all interfaces of the pod are in the model, and the pod has no problem.
	complete bool
	// segment: the interface requests a segment.
	segment bool
}

// reuse merges the interfaces of an earlier mapping with those that have changed. The pods
// of both mappings are sorted by UID, so one pass over both is enough.
type reuse struct {
	before *mapped
	next   int      // index in before.attached: the first interface that was not compared yet
	lease  int      // index in the view's leases: the one that is expected next
	gone   []string // names of the interfaces in before that have changed or are gone
	// attached lists the interfaces of the pods so far, changed or not; changed holds the
	// parts of the new and changed ones.
	attached []placed
	changed  netvirt.Parts
	parts    netvirt.Parts // the merged result
}

func newReuse(before *mapped, leases int) reuse {
	r := reuse{before: before, attached: make([]placed, 0, leases), changed: netvirt.Parts{}}
	if len(before.attached) == 0 {
		r.changed = make(netvirt.Parts, leases+1)
	}
	return r
}

// matchELANs finds the elan-instances that are as they were, and sets their current.
func (b *builder) matchELANs() {
	for node, e := range b.before.elans {
		current := b.elan(node)
		same := func(block *coe.Block) bool { return b.blocks[blockKey{block.ELAN, block.Prefix}] == block }
		if b.VPN == b.before.vpn && current.fact == e.fact && current.node == e.node && !slices.ContainsFunc(e.blocks, not(same)) {
			e.current = current
		}
	}
}

// reusePod reuses the objects of a pod's interfaces. It returns false if the pod was not
// mapped before, or if one of the values that they were made from has changed.
func (b *builder) reusePod(p *coe.Pod) bool {
	before := b.interfacesBefore(p)
	if len(before) == 0 || slices.ContainsFunc(before, not(b.unchanged(p))) {
		b.drop(before)
		return false
	}
	for _, a := range before {
		b.attach(placed{a.attached, a.elan.current})
	}
	return true
}

// interfacesBefore returns the interfaces that a pod had before. It drops the interfaces
// of the pods that come before it in the order and no longer exist.
func (b *builder) interfacesBefore(p *coe.Pod) []placed {
	for b.more() && b.peek() != p && b.peek().UID < p.UID {
		b.drop(b.before.attached[b.next : b.next+1])
		b.next++
	}
	first := b.next
	for b.more() && (b.peek() == p || b.peek().UID == p.UID) {
		b.next++
	}
	return b.before.attached[first:b.next]
}

func (r *reuse) more() bool { return r.next < len(r.before.attached) }

func (r *reuse) peek() *coe.Pod { return r.before.attached[r.next].pod }

func (r *reuse) drop(interfaces []placed) {
	for _, a := range interfaces {
		r.gone = append(r.gone, a.lease.Name)
	}
}

// unchanged returns a function that reports whether an interface of a pod is as it was.
func (b *builder) unchanged(p *coe.Pod) func(placed) bool {
	return func(a placed) bool {
		return a.complete && a.pod == p && a.elan.current != nil && b.has(a.lease) && !b.refused(a.lease) && b.sameMembership(a.attached)
	}
}

// has reports whether the view has a lease. It is fastest if it is called in the order of
// the leases' keys.
func (b *builder) has(l *coe.Lease) bool {
	if b.lease >= len(b.Leases) || b.Leases[b.lease] != l {
		b.lease, _ = b.Leases.Find(l.Key())
	}
	if b.lease >= len(b.Leases) || b.Leases[b.lease] != l {
		return false
	}
	b.lease++
	return true
}

// refused reports whether the interface of a lease is refused something that it needs.
func (b *builder) refused(l *coe.Lease) bool {
	if len(b.Refusals) == 0 {
		return false
	}
	_, refused := b.Refusals[l.Key()]
	return refused
}

// markComplete marks the interfaces of a pod, which begin at first, as complete.
func (r *reuse) markComplete(first int) {
	for _, a := range r.attached[first:] {
		a.complete = true
	}
}

// merge merges the reused parts and the changed ones.
func (r *reuse) merge() {
	r.drop(r.before.attached[r.next:])
	if len(r.gone) == len(r.before.attached) {
		r.parts = r.changed
		return
	}
	r.parts = maps.Clone(r.before.parts)
	delete(r.parts, "")
	for _, name := range r.gone {
		delete(r.parts, name)
	}
	maps.Copy(r.parts, r.changed)
}

func not[T any](is func(T) bool) func(T) bool { return func(v T) bool { return !is(v) } }
