// Package netvirt is the model that this program makes a network backend agree
// with: OpenDaylight's Netvirt objects (elan, l3vpn, ietf-interfaces, odl-nat)
// and the few of our own that Netvirt cannot say (transit, node and its way
// into the network, subnet, service). It holds plain values, their names and references, the difference
// of two models and the order in which a difference is safe to apply.
//
// It is a leaf: it knows neither where a model comes from (Kubernetes,
// RESTCONF) nor what becomes of it (OVN rows, OpenDaylight's datastore).
package netvirt

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind is the kind of an Object. Kinds are numbered by dependence: an object
// refers only to objects of lower kinds, so upserts in ascending and deletes
// in descending order never leave a dangling reference.
type Kind uint8

// The kinds. The comment names the YANG list, or says that the kind is ours.
const (
	KindTransit        Kind = iota + 1 // ours: what connects vpn-instances with a common route target
	KindNode                           // ours: a node of the cluster
	KindNodeNetwork                    // ours: what joins the nodes with a transit
	KindManagementPort                 // ours: a node's own port in a node network
	KindELANInstance                   // elan:elan-instances/elan-instance
	KindVPNInstance                    // l3vpn:vpn-instances/vpn-instance
	KindSubnet                         // ours: an address block of an elan-instance
	KindInterface                      // ietf-interfaces:interfaces/interface
	KindELANInterface                  // elan:elan-interfaces/elan-interface
	KindMACEntry                       // elan-interface/static-mac-entries
	KindVPNInterface                   // l3vpn:vpn-interfaces/vpn-interface
	KindAdjacency                      // vpn-interface/odl-l3vpn:adjacency
	KindService                        // ours: a service
	KindServiceVIP                     // ours: one address and port of a service, with its endpoints
	KindFloatingIP                     // odl-nat:floating-ip-info/router-ports/ports/internal-to-external-port-map
)

var kinds = [...]struct {
	name string
	// detached: the only references to such an object come from objects whose
	// key contains its own, so its deletion can go first (see Diff).
	detached bool
}{
	KindTransit: {"transit", false},
	KindNode:    {"node", false},

	KindNodeNetwork:    {"node-network", false},
	KindManagementPort: {"management-port", true},

	KindELANInstance:  {"elan-instance", false},
	KindVPNInstance:   {"vpn-instance", false},
	KindSubnet:        {"subnet", false},
	KindInterface:     {"interface", true},
	KindELANInterface: {"elan-interface", true},
	KindMACEntry:      {"static-mac-entry", true},
	KindVPNInterface:  {"vpn-interface", true},
	KindAdjacency:     {"adjacency", true},
	KindService:       {"service", false},
	KindServiceVIP:    {"service-vip", true},
	KindFloatingIP:    {"floating-ip", true},
}

// String is the kind's name as logs, metrics and problems spell it.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k].name != "" {
		return kinds[k].name
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Kinds lists all kinds in ascending order.
func Kinds() []Kind {
	all := make([]Kind, 0, len(kinds)-1)
	for k := KindTransit; int(k) < len(kinds); k++ {
		all = append(all, k)
	}
	return all
}

// KindSet is a set of kinds.
type KindSet uint32

// NewKindSet returns the set of the given kinds.
func NewKindSet(kinds ...Kind) KindSet {
	var s KindSet
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether k is in the set.
func (s KindSet) Has(k Kind) bool { return s&(1<<k) != 0 }

// Key identifies an object in a model: its kind and its name, which is unique
// within the kind.
type Key struct {
	Kind Kind
	Name string
}

// String is "kind name", as logs and errors show it.
func (k Key) String() string { return k.Kind.String() + " " + k.Name }

// Compare orders keys by kind, then name.
func (k Key) Compare(other Key) int {
	if c := cmp.Compare(k.Kind, other.Kind); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, other.Name)
}

// Scope is the unit in which models are computed and compared: one namespace,
// or the cluster. Every object belongs to exactly one scope.
type Scope string

// Cluster is the scope of what belongs to no namespace.
const Cluster Scope = ""

// String is the namespace, or "(cluster)", which no namespace can be called.
func (s Scope) String() string {
	if s == Cluster {
		return "(cluster)"
	}
	return string(s)
}

// Object is one object of the model: a comparable struct of this package, held
// by value, so that == tells whether two objects are the same.
type Object interface {
	// Key is the object's identity. Two objects with one key are two versions
	// of one object.
	Key() Key
	// Refs are the keys that must be in the model while this object is. All
	// are of lower kinds.
	Refs() []Key
	// Scope is the scope that the object belongs to.
	Scope() Scope

	sealed()
}

// Limits are what a backend does not do although it has the kinds for it. The zero
// value has no limits.
type Limits struct {
	// OverlayOnly: every elan-instance is an overlay, whatever its segment type says.
	OverlayOnly bool
	// Affinity is the longest session affinity of a service, in seconds; 0: any.
	Affinity uint32
}

// Model is a set of objects by key.
type Model map[Key]Object

// Add puts objects into the model, replacing those of the same key.
func (m Model) Add(objects ...Object) {
	for _, o := range objects {
		m[o.Key()] = o
	}
}

// Keys lists the model's keys in ascending order.
func (m Model) Keys() []Key {
	keys := make([]Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Select returns the objects whose kind is in the set, as a new model.
func (m Model) Select(set KindSet) Model {
	out := make(Model, len(m))
	for k, o := range m {
		if set.Has(k.Kind) {
			out[k] = o
		}
	}
	return out
}

// Dangling returns a reference that the model does not resolve, in key order,
// and the object that holds it; ok is false when there is none.
func (m Model) Dangling() (from, to Key, ok bool) {
	for _, k := range m.Keys() {
		for _, ref := range m[k].Refs() {
			if _, found := m[ref]; !found {
				return k, ref, true
			}
		}
	}
	return Key{}, Key{}, false
}
