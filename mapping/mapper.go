package mapping

import (
	"cmp"
	"net/netip"
	"reflect"
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
	nodes    mappedNodes
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
		return mapCluster(v, m.settings, m.compiled(v.PolicySet), &m.nodes)
	}
	return m.Map(m.store.View(string(scope)))
}

// Map maps one namespace, like the function Map. The parts of unchanged interfaces are the
// same pointers as in the last result.
func (m *Mapper) Map(v coe.View) (netvirt.Parts, []coe.Problem) {
	scope := netvirt.Scope(v.Namespace)
	b := newBuilder(v, m.settings, cmp.Or(m.mapped[scope], &mapped{}), m.compiled(v.PolicySet))
	b.build()
	m.mapped[scope] = &mapped{
		vpn: v.VPN, policies: b.policies, elans: b.elans, facts: v.ELANs, listed: v.Blocks, blocks: b.blocks, attached: b.attached, parts: b.parts,
	}
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
	facts    map[string]*coe.ELANFact // of the view
	listed   []*coe.Block             // of the view
	blocks   map[blockKey]*coe.Block
	attached []placed // sorted by the pod's UID
	parts    netvirt.Parts
}

// blocksOf returns the blocks of a view by key. Successive views share the slice while it is the same.
func (m *mapped) blocksOf(v coe.View) map[blockKey]*coe.Block {
	if len(v.Blocks) > 0 && len(v.Blocks) == len(m.listed) && &v.Blocks[0] == &m.listed[0] {
		return m.blocks
	}
	blocks := make(map[blockKey]*coe.Block, len(v.Blocks))
	for _, block := range v.Blocks {
		blocks[blockKey{block.ELAN, block.Prefix}] = block
	}
	return blocks
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
	// complete: all interfaces of the pod are in the model, and the pod has no other problems than these.
	complete bool
	problems []coe.Problem // the pod's, which depend on the pod, its leases and the settings alone
	// segment: the interface requests a segment. hostPorts: nodes answer on the pod's host ports.
	segment, hostPorts bool
}

// reuse merges the interfaces of an earlier mapping with those that have changed. The pods
// of both mappings are sorted by UID, so one pass over both is enough.
type reuse struct {
	before *mapped
	next   int // index in before.attached: the first interface that was not compared yet
	lease  int // index in the view's leases: the one that is expected next
	// attached lists the interfaces of the pods so far, changed or not.
	attached []placed
	// changed has the parts of new and changed interfaces, and nil for those that are gone.
	changed map[string]*netvirt.Part
	parts   netvirt.Parts // the result
}

func newReuse(before *mapped, leases int) reuse {
	return reuse{before: before, attached: make([]placed, 0, leases), changed: map[string]*netvirt.Part{}}
}

// matchELANs finds the elan-instances that are as they were, and sets their current.
func (b *builder) matchELANs() {
	sameFacts := reflect.ValueOf(b.ELANs).UnsafePointer() == reflect.ValueOf(b.before.facts).UnsafePointer()
	for node, e := range b.before.elans {
		current := &elan{name: e.name, fact: e.fact, node: b.Nodes[node]}
		if !sameFacts {
			current.fact = b.ELANs[e.name]
		}
		b.elans[node] = current
		kept := func(block *coe.Block) bool { return b.blocks[blockKey{block.ELAN, block.Prefix}] == block }
		if b.VPN == b.before.vpn && current.fact == e.fact && current.node == e.node && !slices.ContainsFunc(e.blocks, not(kept)) {
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
		b.problems = append(b.problems, a.problems...)
	}
	if before[0].hostPorts {
		b.hostPods = append(b.hostPods, p)
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
	if b.more() && (b.peek() == p || b.peek().UID == p.UID) {
		for same := b.peek(); b.more() && b.peek() == same; {
			b.next++
		}
	}
	return b.before.attached[first:b.next]
}

func (r *reuse) more() bool { return r.next < len(r.before.attached) }

func (r *reuse) peek() *coe.Pod { return r.before.attached[r.next].pod }

// drop drops interfaces of before. Another pod can have one of their names now.
func (r *reuse) drop(interfaces []placed) {
	for _, a := range interfaces {
		if _, again := r.changed[a.lease.Name]; !again {
			r.changed[a.lease.Name] = nil
		}
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

// markComplete marks the interfaces of a pod, which begin at first, as complete, with the pod's problems. The pod is on the node
// of its leases, so that what else the pod depends on is in their elans.
func (r *reuse) markComplete(p *coe.Pod, first int, problems []coe.Problem) {
	for i, a := range r.attached[first:] {
		a.complete = a.lease.Node == p.HostIP
		if i == 0 {
			a.problems = problems
		}
	}
}

// dropRest drops the interfaces of the pods that come after all pods.
func (r *reuse) dropRest() {
	r.drop(r.before.attached[r.next:])
	r.next = len(r.before.attached)
}

func not[T any](is func(T) bool) func(T) bool { return func(v T) bool { return !is(v) } }
