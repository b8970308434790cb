// Package mapping says what the network should be: the specification's table
// ("Model Mapping") from what is said of one scope to Netvirt objects. It is
// pure: the result depends on the given view and settings alone, not on any
// history; it has no clock, no log and no errors. What can't be mapped is a
// Problem, and is mapped when what is missing arrives.
package mapping

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Isolation says whether pods of different namespaces reach each other.
type Isolation string

const (
	// IsolationNone lets every pod reach every pod (spec, "Use Case 1").
	IsolationNone Isolation = "none"
	// IsolationNamespace keeps namespaces apart.
	IsolationNamespace Isolation = "namespace"
)

// Settings are what an operator chooses about the mapping.
type Settings struct {
	Isolation Isolation
	// Limits are those of the backend that serves.
	Limits netvirt.Limits
	// DHCPLeaseTime is what pods that ask by DHCP are told, in seconds.
	DHCPLeaseTime uint32
}

// Isolated tells whether each namespace has an address space of its own.
func (s Settings) Isolated() bool { return s.Isolation == IsolationNamespace }

// transit is the route target that vpn-instances share, or empty.
func (s Settings) transit() string {
	if s.Isolated() {
		return ""
	}
	return netvirt.CommonRouteTarget
}

// Map maps one namespace. The problems are sorted, each once.
func Map(v coe.View, s Settings) (netvirt.Model, []coe.Problem) {
	b := newBuilder(v, s, &made{})
	b.build()
	return b.parts.Model(), b.problems
}

func newBuilder(v coe.View, s Settings, before *made) *builder {
	b := &builder{
		View:     v,
		Settings: s,
		round:    newRound(before, len(v.Leases)),
		rest:     make(netvirt.Model, len(v.Blocks)+len(v.ELANs)+4*len(v.Services)+1),
		blocks:   make(map[blockKey]*coe.Block, len(v.Blocks)),
		elans:    map[netip.Addr]*elan{},
		pods:     map[netip.Addr]*coe.Lease{},
	}
	for _, block := range v.Blocks {
		b.blocks[blockKey{block.ELAN, block.Prefix}] = block
	}
	return b
}

func (b *builder) build() {
	b.compare()
	for _, p := range b.Pods {
		if !b.again(p) {
			b.pod(p)
		}
	}
	b.settle()
	for _, e := range b.elans {
		if e.first != nil {
			b.rest.Add(elanInstance(e))
		}
	}
	if len(b.parts) > 0 {
		b.rest.Add(b.vpnInstance())
	}
	b.services()
	b.notEnforced()
	if len(b.rest) > 0 {
		b.parts[""] = &netvirt.Part{Model: b.rest}
	}
	slices.SortFunc(b.problems, func(a, c coe.Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, c.Kind), cmp.Compare(a.UID, c.UID),
			cmp.Compare(a.Reason, c.Reason), cmp.Compare(a.Message, c.Message))
	})
	b.problems = slices.Compact(b.problems) // a service has the same one for each of its addresses
}

// builder collects the model of one namespace.
type builder struct {
	coe.View
	Settings
	round
	rest     netvirt.Model // what attaches no interface
	problems []coe.Problem
	blocks   map[blockKey]*coe.Block
	elans    map[netip.Addr]*elan // by node
	// pods has the mapped interfaces by address, where there are services.
	pods map[netip.Addr]*coe.Lease
	// backends counts the endpoints of the services, see coe.MaxNamespaceBackends.
	backends int
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// elan is the namespace's elan-instance on a node.
type elan struct {
	name string
	fact *coe.ELANFact // nil while nothing is chosen for it
	node *coe.Node     // nil where it is not known
	// first is the lease that was there first, of the interface that decides on the
	// segment; nil while none is mapped.
	first *coe.Lease
	iface *coe.PodInterface
	// blocks are those whose subnet is in the model.
	blocks []*coe.Block
	// now is its like in the round that follows, if whatever was made of this one is
	// made of that one too.
	now *elan
}

// Scope maps one scope of a store: a namespace, or the cluster.
func Scope(store *coe.Store, scope netvirt.Scope, s Settings) (netvirt.Model, []coe.Problem) {
	if scope == netvirt.Cluster {
		return Cluster(store.Cluster(), s)
	}
	return Map(store.View(string(scope)), s)
}
