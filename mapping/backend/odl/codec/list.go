// Package codec translates the objects of the model to entries of Netvirt's lists in OpenDaylight's config datastore, and entries to
// objects. It knows neither RESTCONF nor the state of a controller.
//
// Several objects can be in one entry: an elan-interface contains its static MAC entries, a vpn-interface its adjacencies. An entry
// is ours if it has our mark (decision 24). No other entry is ever changed. In an entry of ours only the leaves of the model are
// written: leaves that the controller or an external writer adds (an elan-tag, a learnt adjacency) are neither read nor deleted.
//
// Netvirt does not forward packets between vpn-instances with a common route target. So a
// Transit is encoded as a vpn-instance, and the interfaces of all vpn-instances with this
// Transit are its members. The vpn-instances themselves then have no members, and their
// description names the Transit.
//
// ACLs and RemoteGroups are access lists of Netvirt's aclservice (decision 46), and the names of both
// are security groups of interfaces.
package codec

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// The lists with our entries, in the order of dependence: an entry refers only to entries
// of lists before its own.
const (
	ELANInstances = iota
	VPNInstances
	AccessLists
	Interfaces
	ELANInterfaces
	VPNInterfaces
	floatingIPs
	ListCount
)

// Stages groups the lists in the order of dependence. Lists of one stage do not depend on
// each other. A vpn-interface does not refer to an elan-interface, but it comes later: if the
// port exists already, Netvirt answers ARP for the gateway only if it finds the
// elan-interface when it processes the vpn-interface.
var Stages = [...][]int{{ELANInstances, VPNInstances, AccessLists}, {Interfaces}, {ELANInterfaces}, {VPNInterfaces}, {floatingIPs}}

// List is one of Netvirt's lists, the only one in its container.
type List struct {
	Module, Container, Name string
	Fresh                   func() Entry // returns an empty entry
	// FirstKey is the value of a key before the key of the entry, equal in all entries of ours;
	// empty if the list has one key.
	FirstKey string
}

// Top returns the container's name with its module.
func (l *List) Top() string { return l.Module + ":" + l.Container }

// Body returns the body of a request with entries of the list.
func (l *List) Body(entries ...Entry) ([]byte, error) {
	body, err := json.Marshal(map[string][]Entry{l.Module + ":" + l.Name: entries})
	if err != nil {
		return nil, fmt.Errorf("write entries of %s as JSON: %w", l.Top(), err)
	}
	return body, nil
}

// ListsOf returns the lists of a controller, given the form of its l3vpn.
func ListsOf(f Form) *[ListCount]List {
	lists := [ListCount]List{
		ELANInstances:  {"elan", "elan-instances", "elan-instance", func() Entry { return &ELANInstance{} }, ""},
		VPNInstances:   {ModuleL3VPN, "vpn-instances", "vpn-instance", func() Entry { return &vpnInstance{} }, ""},
		AccessLists:    {"ietf-access-control-list", "access-lists", "acl", func() Entry { return &accessList{} }, accessListType},
		Interfaces:     {"ietf-interfaces", "interfaces", "interface", func() Entry { return &IETFInterface{} }, ""},
		ELANInterfaces: {"elan", "elan-interfaces", "elan-interface", func() Entry { return &ELANInterface{} }, ""},
		VPNInterfaces:  {ModuleL3VPN, "vpn-interfaces", "vpn-interface", func() Entry { return &VPNInterface{moved: f != Nested} }, ""},
		floatingIPs:    {"odl-nat", "floating-ip-info", "router-ports", func() Entry { return &routerPorts{} }, ""},
	}
	if f != Nested {
		lists[VPNInstances].Module, lists[VPNInterfaces].Module = ModuleMoved, ModuleMoved
	}
	if f == Flat {
		lists[VPNInstances].Fresh = func() Entry { return &flatVPNInstance{} }
	}
	return &lists
}

// TransitPrefix is the prefix of the vpn-instances of Transits. No namespace has it.
const TransitPrefix = "transit:"

// Unit identifies entries that are encoded and decoded together: all entries of one
// interface, or one entry of another kind.
type Unit struct {
	// Kind is KindTransit, KindNodeNetwork, KindManagementPort, KindELANInstance, KindVPNInstance, KindNodePort, KindACL,
	// KindInterface or KindFloatingIP.
	// The list of a RemoteGroup has KindACL too.
	Kind netvirt.Kind
	Name string // the entries' key
}

// Content holds a unit's entry in each list, or nil.
type Content [ListCount]Entry

// UnitOf returns the unit that an object belongs to.
func UnitOf(o netvirt.Object) Unit {
	switch o := o.(type) {
	case netvirt.Transit:
		return Unit{netvirt.KindTransit, TransitPrefix + o.RouteTarget}
	case netvirt.NodeNetwork:
		return Unit{netvirt.KindNodeNetwork, NetworkName(o.Prefix)}
	case netvirt.ManagementPort:
		return Unit{netvirt.KindManagementPort, o.Name()}
	case netvirt.NodePort:
		return Unit{netvirt.KindNodePort, o.Name()}
	case netvirt.ELANInterface:
		return Unit{netvirt.KindInterface, o.Name}
	case netvirt.MACEntry:
		return Unit{netvirt.KindInterface, o.Interface}
	case netvirt.VPNInterface:
		return Unit{netvirt.KindInterface, o.Name}
	case netvirt.Adjacency:
		return Unit{netvirt.KindInterface, o.Interface}
	case netvirt.FloatingIP:
		return Unit{netvirt.KindFloatingIP, o.Router}
	case netvirt.ACL, netvirt.RemoteGroup:
		return Unit{netvirt.KindACL, netvirtjson.GroupID(o.Key())}
	case netvirt.ACE:
		return Unit{netvirt.KindACL, netvirtjson.GroupID(netvirt.ACL{Name: o.ACL}.Key())}
	case netvirt.InterfaceACL:
		return Unit{netvirt.KindInterface, o.Interface}
	}
	return Unit{o.Key().Kind, o.Key().Name}
}

// UnitAt returns the unit of an entry, given its list and key.
func UnitAt(l int, key string) Unit {
	switch l {
	case ELANInstances:
		if _, ok := parseNetworkName(key); ok {
			return Unit{netvirt.KindNodeNetwork, key}
		}
		return Unit{netvirt.KindELANInstance, key}
	case VPNInstances:
		if strings.HasPrefix(key, TransitPrefix) {
			return Unit{netvirt.KindTransit, key}
		}
		return Unit{netvirt.KindVPNInstance, key}
	case AccessLists:
		return Unit{netvirt.KindACL, key}
	case floatingIPs:
		return Unit{netvirt.KindFloatingIP, key}
	}
	if _, namespace, ok := parseNodeName(key); ok && namespace == "" {
		return Unit{netvirt.KindManagementPort, key}
	} else if ok {
		return Unit{netvirt.KindNodePort, key}
	}
	return Unit{netvirt.KindInterface, key}
}

// listOf returns the list whose entries contain the objects of a kind.
func listOf(k netvirt.Kind) int {
	switch k {
	case netvirt.KindELANInstance, netvirt.KindNodeNetwork:
		return ELANInstances
	case netvirt.KindTransit, netvirt.KindVPNInstance:
		return VPNInstances
	case netvirt.KindACL, netvirt.KindACE, netvirt.KindRemoteGroup:
		return AccessLists
	case netvirt.KindInterface, netvirt.KindInterfaceACL, netvirt.KindManagementPort, netvirt.KindNodePort:
		return Interfaces
	case netvirt.KindELANInterface, netvirt.KindMACEntry:
		return ELANInterfaces
	case netvirt.KindVPNInterface, netvirt.KindAdjacency:
		return VPNInterfaces
	}
	return floatingIPs
}

// Kinds returns the kinds that have an encoding: those that Netvirt has lists for. Their leaves contain what they need of other kinds
// (subnet, service).
func Kinds() netvirt.KindSet {
	return netvirt.NewKindSet(
		netvirt.KindTransit, netvirt.KindNodeNetwork, netvirt.KindManagementPort, netvirt.KindNodePort, netvirt.KindELANInstance, netvirt.KindVPNInstance, netvirt.KindInterface, netvirt.KindELANInterface,
		netvirt.KindMACEntry, netvirt.KindVPNInterface, netvirt.KindAdjacency, netvirt.KindFloatingIP,
		netvirt.KindRemoteGroup, netvirt.KindACL, netvirt.KindACE, netvirt.KindInterfaceACL,
	)
}
