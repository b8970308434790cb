// Package netvirt is the network model: OpenDaylight's Netvirt objects (elan, l3vpn,
// ietf-interfaces, odl-nat), and our own kinds for what Netvirt lacks (transit, node, node
// network, management port, gateway, egress IP, subnet, node port, service). It has plain values with their names and
// references, the difference of two models, and the order in which to apply it safely.
//
// It knows neither where a model comes from (Kubernetes, RESTCONF) nor how a backend
// writes it (OVN rows, OpenDaylight's datastore).
package netvirt

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind is the kind of an Object. An object refers only to objects of lower kinds. So
// creations and updates in ascending order, and deletions in descending order, never leave
// a dangling reference.
type Kind uint8

// The kinds, with the YANG list of each; "ours" is a kind that Netvirt does not have.
const (
	KindTransit        Kind = iota + 1 // ours: connects vpn-instances with a common route target
	KindNode                           // ours: a node of the cluster
	KindNodeNetwork                    // ours: connects the nodes to a transit
	KindManagementPort                 // ours: a node's own port in a node network
	KindGateway                        // ours: a router on a node to a network outside
	KindRemoteGroup                    // aclservice:remote-group-id, with its members
	KindEgressIP                       // ours: the way by which selected pods leave the network
	KindELANInstance                   // elan:elan-instances/elan-instance
	KindVPNInstance                    // l3vpn:vpn-instances/vpn-instance
	KindSubnet                         // ours: an address block of an elan-instance
	KindNodePort                       // ours: a node's own port in an elan-instance
	KindACL                            // ietf-access-control-list:access-lists/acl
	KindACE                            // acl/access-list-entries/ace
	KindInterface                      // ietf-interfaces:interfaces/interface
	KindELANInterface                  // elan:elan-interfaces/elan-interface
	KindMACEntry                       // elan-interface/static-mac-entries
	KindVPNInterface                   // l3vpn:vpn-interfaces/vpn-interface
	KindAdjacency                      // vpn-interface/odl-l3vpn:adjacency
	KindInterfaceACL                   // interface/aclservice:interface-acl
	KindService                        // ours: a service
	KindServiceVIP                     // ours: one address and port of a service, with its endpoints
	KindGatewayVIP                     // ours: an address and port at which a gateway leads to a service
	KindFloatingIP                     // odl-nat:floating-ip-info/router-ports/ports/internal-to-external-port-map
)

var kinds = [...]struct {
	name string
	// detached: only objects whose key contains this object's key refer to it, so its
	// deletion can come first (see Diff).
	detached bool
}{
	KindTransit: {"transit", false},
	KindNode:    {"node", false},

	KindNodeNetwork:    {"node-network", false},
	KindManagementPort: {"management-port", true},
	KindGateway:        {"gateway", true},

	KindRemoteGroup:   {"remote-group", false},
	KindEgressIP:      {"egress-ip", false},
	KindELANInstance:  {"elan-instance", false},
	KindVPNInstance:   {"vpn-instance", false},
	KindSubnet:        {"subnet", false},
	KindNodePort:      {"node-port", true},
	KindACL:           {"acl", false},
	KindACE:           {"ace", false},
	KindInterface:     {"interface", true},
	KindELANInterface: {"elan-interface", true},
	KindMACEntry:      {"static-mac-entry", true},
	KindVPNInterface:  {"vpn-interface", true},
	KindAdjacency:     {"adjacency", true},
	KindInterfaceACL:  {"interface-acl", true},
	KindService:       {"service", false},
	KindServiceVIP:    {"service-vip", true},
	KindGatewayVIP:    {"gateway-vip", true},
	KindFloatingIP:    {"floating-ip", true},
}

// String returns the kind's name, as in logs, metrics and problems.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k].name != "" {
		return kinds[k].name
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Kinds returns all kinds in ascending order.
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

// Key identifies an object in a model. Name is unique within the kind.
type Key struct {
	Kind Kind
	Name string
}

// String returns "kind name", as in logs and errors.
func (k Key) String() string { return k.Kind.String() + " " + k.Name }

// Compare orders keys by kind, then name.
func (k Key) Compare(other Key) int {
	if c := cmp.Compare(k.Kind, other.Kind); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, other.Name)
}

// Scope is the unit in which models are computed and compared: one namespace, or the
// cluster. Every object belongs to exactly one scope.
type Scope string

// Cluster is the scope of the objects that belong to no namespace.
const Cluster Scope = ""

// String returns the namespace, or "(cluster)", which is not a valid namespace.
func (s Scope) String() string {
	if s == Cluster {
		return "(cluster)"
	}
	return string(s)
}

// Object is one object of the model: a comparable struct of this package, held by value,
// so that == compares two objects.
type Object interface {
	// Key returns the object's identity. Two objects with one key are two versions of one
	// object.
	Key() Key
	// Refs returns the keys of the objects that this object refers to. They must be in the
	// model, and are of lower kinds.
	Refs() []Key
	// Scope returns the scope that the object belongs to.
	Scope() Scope

	sealed()
}

// Limits are restrictions of a backend for kinds that it supports. The zero value has no
// limits.
type Limits struct {
	// OverlayOnly: every elan-instance without a physical network is an overlay, with any segment type.
	OverlayOnly bool
	// NoPhysicalNetworks: no elan-instance is attached to a physical network.
	NoPhysicalNetworks bool
	// Affinity is the maximum session affinity of a service, in seconds; 0 means no limit.
	Affinity uint32
	// NoACLs: the backend has no ACLs, so network policies are not enforced.
	NoACLs bool
	// NoLogs: the backend does not log what ACLs decide, so no ACL of the mapping Logs.
	NoLogs bool
	// NoPlaces: the backend does not choose the endpoints of a service by the place of the client,
	// so no service of the mapping has Places.
	NoPlaces bool
	// NodesBalance: the backend does not lead pods to services. Nodes do, and pods reach their node by a NodePort.
	NodesBalance bool
	// NoGateways: the backend has no gateways.
	NoGateways bool
	// NoSCTPPorts: an ACE allows nothing for ports of SCTP. It can allow all of SCTP.
	NoSCTPPorts bool
	// NoDHCP: the backend answers no DHCP requests, so no Interface of the mapping has DHCP. The agents of nodes answer them.
	NoDHCP bool
	// KeepsELANs: an elan-instance that is created again soon after it was deleted can stay without flows. So it is kept
	// while addresses of its former interfaces rest.
	KeepsELANs bool
	// NodeGateways: the pods of a node share one network in the backend, so every node with Subnets is a Node, with its
	// Gateways.
	NodeGateways bool
}

// Model is a set of objects by key.
type Model map[Key]Object

// Add adds objects to the model, and replaces objects with the same key.
func (m Model) Add(objects ...Object) {
	for _, o := range objects {
		m[o.Key()] = o
	}
}

// Keys returns the model's keys in ascending order.
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

// Dangling returns the first dangling reference in key order: from refers to to, and to is
// not in the model. ok is false if there is none.
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
