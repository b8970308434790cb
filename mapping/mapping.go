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

// Cluster maps what belongs to no namespace: the nodes, and what connects the
// vpn-instances.
func Cluster(nodes map[netip.Addr]*coe.Node, s Settings) netvirt.Model {
	m := make(netvirt.Model, len(nodes)+1)
	for addr, n := range nodes {
		m.Add(netvirt.Node{Address: addr, HostName: n.HostName})
	}
	if target := s.transit(); target != "" {
		m.Add(netvirt.Transit{RouteTarget: target})
	}
	return m
}

// Map maps one namespace. The problems are sorted, each once.
func Map(v coe.View, s Settings) (netvirt.Model, []coe.Problem) {
	return newBuilder(v, s).build()
}

func newBuilder(v coe.View, s Settings) *builder {
	return &builder{
		View:      v,
		Settings:  s,
		model:     make(netvirt.Model, objectsPerPod*len(v.Leases)+len(v.Blocks)+4*len(v.Services)+8),
		blocks:    make(map[blockKey]*coe.Block, len(v.Blocks)),
		seeds:     map[string]seed{},
		pods:      make(map[netip.Addr]*coe.Lease, len(v.Leases)),
		shown:     make(map[*coe.Block]bool, len(v.Blocks)),
		elanNames: map[netip.Addr]string{},
	}
}

func (b *builder) build() (netvirt.Model, []coe.Problem) {
	for _, block := range b.Blocks {
		b.blocks[blockKey{block.ELAN, block.Prefix}] = block
	}
	for _, p := range b.Pods {
		b.pod(p)
	}
	for elan, seed := range b.seeds {
		b.model.Add(b.elanInstance(elan, seed))
	}
	if len(b.seeds) > 0 {
		b.model.Add(b.vpnInstance())
	}
	b.services()
	slices.SortFunc(b.problems, func(a, c coe.Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, c.Kind), cmp.Compare(a.UID, c.UID),
			cmp.Compare(a.Reason, c.Reason), cmp.Compare(a.Message, c.Message))
	})
	return b.model, slices.Compact(b.problems) // a service has the same one for each of its addresses
}

// objectsPerPod is how many objects a pod with one address has of its own.
const objectsPerPod = 5

// builder collects the model of one namespace.
type builder struct {
	coe.View
	Settings
	model    netvirt.Model
	problems []coe.Problem
	blocks   map[blockKey]*coe.Block
	// seeds has, for each elan-instance, the interface that was there first.
	seeds map[string]seed
	// pods has the mapped interfaces by address.
	pods map[netip.Addr]*coe.Lease
	// shown are the blocks whose subnet is in the model.
	shown     map[*coe.Block]bool
	elanNames map[netip.Addr]string // by node
	// before and after are what a Mapper made of each lease: the last time, and
	// now. Both are nil without one.
	before, after map[*coe.Lease]*attachment
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// seed is the interface that decides on the segment of its elan-instance.
type seed struct {
	seq uint64
	coe.PodInterface
}

// Scope maps one scope of a store: a namespace, or the cluster.
func Scope(store *coe.Store, scope netvirt.Scope, s Settings) (netvirt.Model, []coe.Problem) {
	if scope == netvirt.Cluster {
		return Cluster(store.Nodes(), s), nil
	}
	return Map(store.View(string(scope)), s)
}
