package mapping

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Mapper maps the same scopes again and again, with the results of Scope. It
// keeps what it made of each pod and makes it anew only when something that
// it was made of is another value: a store's values are never changed, so the
// pointers tell. It is for one goroutine.
type Mapper struct {
	store    *coe.Store
	settings Settings
	made     map[netvirt.Scope]*made
}

// NewMapper returns a Mapper of a store's scopes.
func NewMapper(store *coe.Store, s Settings) *Mapper {
	return &Mapper{store, s, map[netvirt.Scope]*made{}}
}

// Scope maps one scope, like the function of that name.
func (m *Mapper) Scope(scope netvirt.Scope) (netvirt.Parts, []coe.Problem) {
	if scope == netvirt.Cluster {
		model, problems := Cluster(m.store.Cluster(), m.settings)
		return model.Parts(), problems
	}
	return m.Map(m.store.View(string(scope)))
}

// Map maps one namespace, like the function of that name. The parts of interfaces
// of which nothing has changed are those of the last time.
func (m *Mapper) Map(v coe.View) (netvirt.Parts, []coe.Problem) {
	scope := netvirt.Scope(v.Namespace)
	before := m.made[scope]
	if before == nil {
		before = &made{}
	}
	b := newBuilder(v, m.settings, before)
	b.build()
	m.made[scope] = &made{vpn: v.VPN, elans: b.elans, attached: b.attached, parts: b.parts}
	if len(b.attached) == 0 {
		delete(m.made, scope)
	}
	return b.parts, b.problems
}

// made is what was made of a namespace.
type made struct {
	vpn      *coe.VPNFact
	elans    map[netip.Addr]*elan
	attached []attached // sorted by the pod's uid
	parts    netvirt.Parts
}

// attached is an interface that is in the model.
type attached struct {
	pod    *coe.Pod
	lease  *coe.Lease
	iface  *coe.PodInterface
	elan   *elan
	blocks [2]*coe.Block // of the lease's addresses, one of a family
	seq    uint64        // the lease's
	// whole: the pod is in the model with all its interfaces, and has no problem.
	whole bool
}

// round is what a builder makes of interfaces, beside what was made of them before.
type round struct {
	before *made
	next   int      // of before.attached: the first whose pod is not reached yet
	lease  int      // of the view's leases: the one that is expected next
	gone   []string // the interfaces that are not as they were before, by name
	// attached are the interfaces of the pods that are reached, anew the parts of
	// those that are not as they were before.
	attached []attached
	anew     netvirt.Parts
	parts    netvirt.Parts // all, when all pods are reached
}

func newRound(before *made, leases int) round {
	r := round{before: before, attached: make([]attached, 0, leases), anew: netvirt.Parts{}}
	if len(before.attached) == 0 {
		r.anew = make(netvirt.Parts, leases+1)
	}
	return r
}

// compare finds the elan-instances whose interfaces can be as they were.
func (b *builder) compare() {
	for node, e := range b.before.elans {
		now := b.elan(node)
		same := func(block *coe.Block) bool { return b.blocks[blockKey{block.ELAN, block.Prefix}] == block }
		if b.VPN == b.before.vpn && now.fact == e.fact && now.node == e.node && !slices.ContainsFunc(e.blocks, not(same)) {
			e.now = now
		}
	}
}

// again has a pod in the model as it was before, unless it was not, or something that
// it was made of has changed.
func (b *builder) again(p *coe.Pod) bool {
	before := b.reach(p)
	if len(before) == 0 || slices.ContainsFunc(before, not(b.same(p))) {
		b.leave(before)
		return false
	}
	for _, a := range before {
		a.elan = a.elan.now
		b.attach(a)
	}
	return true
}

// reach leaves the pods that came before this one and are no more, and returns what
// interfaces it had.
func (b *builder) reach(p *coe.Pod) []attached {
	for b.more() && b.peek() != p && b.peek().UID < p.UID {
		b.leave(b.before.attached[b.next : b.next+1])
		b.next++
	}
	first := b.next
	for b.more() && (b.peek() == p || b.peek().UID == p.UID) {
		b.next++
	}
	return b.before.attached[first:b.next]
}

func (r *round) more() bool { return r.next < len(r.before.attached) }

func (r *round) peek() *coe.Pod { return r.before.attached[r.next].pod }

func (r *round) leave(interfaces []attached) {
	for _, a := range interfaces {
		r.gone = append(r.gone, a.lease.Name)
	}
}

// same tells whether an interface of a pod is as it was.
func (b *builder) same(p *coe.Pod) func(attached) bool {
	return func(a attached) bool {
		return a.whole && a.pod == p && a.elan.now != nil && b.has(a.lease) && !b.refused(a.lease)
	}
}

// has tells whether a lease is among the view's. Who asks in the order of the keys has
// the answer without looking into any lease.
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

// refused tells whether the interface of a lease could not be given what it needs.
func (b *builder) refused(l *coe.Lease) bool {
	if len(b.Refusals) == 0 {
		return false
	}
	_, refused := b.Refusals[l.Key()]
	return refused
}

// asWhole notes that the interfaces of a pod, the last ones from begun on, are all that
// there is to say of it.
func (r *round) asWhole(begun int) {
	for n := range r.attached[begun:] {
		r.attached[begun+n].whole = true
	}
}

// settle puts together what is as it was and what is made anew.
func (r *round) settle() {
	r.leave(r.before.attached[r.next:])
	if len(r.gone) == len(r.before.attached) {
		r.parts = r.anew
		return
	}
	r.parts = maps.Clone(r.before.parts)
	delete(r.parts, "")
	for _, name := range r.gone {
		delete(r.parts, name)
	}
	maps.Copy(r.parts, r.anew)
}

func not[T any](is func(T) bool) func(T) bool { return func(v T) bool { return !is(v) } }
