package odl

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// The lists with our entries, in the order of dependence: an entry refers only to entries
// of lists before its own.
const (
	elanInstances = iota
	vpnInstances
	accessLists
	interfaces
	elanInterfaces
	vpnInterfaces
	floatingIPs
	listCount
)

// stages groups the lists in the order of dependence. Lists of one stage do not depend on
// each other. A vpn-interface does not refer to an elan-interface, but it comes later: if the
// port exists already, Netvirt answers ARP for the gateway only if it finds the
// elan-interface when it processes the vpn-interface.
var stages = [...][]int{{elanInstances, vpnInstances, accessLists}, {interfaces}, {elanInterfaces}, {vpnInterfaces}, {floatingIPs}}

// list is one of Netvirt's lists, the only one in its container.
type list struct {
	module, container, name string
	fresh                   func() entry // returns an empty entry
	// firstKey is the value of a key before the key of the entry, equal in all entries of ours;
	// empty if the list has one key.
	firstKey string
}

// top returns the container's name with its module.
func (l *list) top() string { return l.module + ":" + l.container }

// listsOf returns the lists of a controller, given the form of its l3vpn.
func listsOf(f form) *[listCount]list {
	lists := [listCount]list{
		elanInstances:  {"elan", "elan-instances", "elan-instance", func() entry { return &elanInstance{} }, ""},
		vpnInstances:   {moduleL3VPN, "vpn-instances", "vpn-instance", func() entry { return &vpnInstance{} }, ""},
		accessLists:    {"ietf-access-control-list", "access-lists", "acl", func() entry { return &accessList{} }, accessListType},
		interfaces:     {"ietf-interfaces", "interfaces", "interface", func() entry { return &ietfInterface{} }, ""},
		elanInterfaces: {"elan", "elan-interfaces", "elan-interface", func() entry { return &elanInterface{} }, ""},
		vpnInterfaces:  {moduleL3VPN, "vpn-interfaces", "vpn-interface", func() entry { return &vpnInterface{moved: f != nested} }, ""},
		floatingIPs:    {"odl-nat", "floating-ip-info", "router-ports", func() entry { return &routerPorts{} }, ""},
	}
	if f != nested {
		lists[vpnInstances].module, lists[vpnInterfaces].module = moduleMoved, moduleMoved
	}
	if f == flat {
		lists[vpnInstances].fresh = func() entry { return &flatVPNInstance{} }
	}
	return &lists
}

// transitPrefix is the prefix of the vpn-instances of Transits. No namespace has it.
const transitPrefix = "transit:"

// unit identifies entries that are encoded and decoded together: all entries of one
// interface, or one entry of another kind.
type unit struct {
	// kind is KindTransit, KindNodeNetwork, KindManagementPort, KindELANInstance, KindVPNInstance, KindNodePort, KindACL,
	// KindInterface or KindFloatingIP.
	// The list of a RemoteGroup has KindACL too.
	kind netvirt.Kind
	name string // the entries' key
}

// content holds a unit's entry in each list, or nil.
type content [listCount]entry

// unitOf returns the unit that an object belongs to.
func unitOf(o netvirt.Object) unit {
	switch o := o.(type) {
	case netvirt.Transit:
		return unit{netvirt.KindTransit, transitPrefix + o.RouteTarget}
	case netvirt.NodeNetwork:
		return unit{netvirt.KindNodeNetwork, networkName(o.Prefix)}
	case netvirt.ManagementPort:
		return unit{netvirt.KindManagementPort, o.Name()}
	case netvirt.NodePort:
		return unit{netvirt.KindNodePort, o.Name()}
	case netvirt.ELANInterface:
		return unit{netvirt.KindInterface, o.Name}
	case netvirt.MACEntry:
		return unit{netvirt.KindInterface, o.Interface}
	case netvirt.VPNInterface:
		return unit{netvirt.KindInterface, o.Name}
	case netvirt.Adjacency:
		return unit{netvirt.KindInterface, o.Interface}
	case netvirt.FloatingIP:
		return unit{netvirt.KindFloatingIP, o.Router}
	case netvirt.ACL, netvirt.RemoteGroup:
		return unit{netvirt.KindACL, netvirtjson.GroupID(o.Key())}
	case netvirt.ACE:
		return unit{netvirt.KindACL, netvirtjson.GroupID(netvirt.ACL{Name: o.ACL}.Key())}
	case netvirt.InterfaceACL:
		return unit{netvirt.KindInterface, o.Interface}
	}
	return unit{o.Key().Kind, o.Key().Name}
}

// unitAt returns the unit of an entry, given its list and key.
func unitAt(l int, key string) unit {
	switch l {
	case elanInstances:
		if _, ok := parseNetworkName(key); ok {
			return unit{netvirt.KindNodeNetwork, key}
		}
		return unit{netvirt.KindELANInstance, key}
	case vpnInstances:
		if strings.HasPrefix(key, transitPrefix) {
			return unit{netvirt.KindTransit, key}
		}
		return unit{netvirt.KindVPNInstance, key}
	case accessLists:
		return unit{netvirt.KindACL, key}
	case floatingIPs:
		return unit{netvirt.KindFloatingIP, key}
	}
	if _, namespace, ok := parseNodeName(key); ok && namespace == "" {
		return unit{netvirt.KindManagementPort, key}
	} else if ok {
		return unit{netvirt.KindNodePort, key}
	}
	return unit{netvirt.KindInterface, key}
}

// listOf returns the list whose entries contain the objects of a kind.
func listOf(k netvirt.Kind) int {
	switch k {
	case netvirt.KindELANInstance, netvirt.KindNodeNetwork:
		return elanInstances
	case netvirt.KindTransit, netvirt.KindVPNInstance:
		return vpnInstances
	case netvirt.KindACL, netvirt.KindACE, netvirt.KindRemoteGroup:
		return accessLists
	case netvirt.KindInterface, netvirt.KindInterfaceACL, netvirt.KindManagementPort, netvirt.KindNodePort:
		return interfaces
	case netvirt.KindELANInterface, netvirt.KindMACEntry:
		return elanInterfaces
	case netvirt.KindVPNInterface, netvirt.KindAdjacency:
		return vpnInterfaces
	}
	return floatingIPs
}
