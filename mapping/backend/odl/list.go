package odl

import (
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// The lists that hold what is ours, in the order of dependence: an entry refers to entries
// of lists before its own.
const (
	elanInstances = iota
	vpnInstances
	interfaces
	elanInterfaces
	vpnInterfaces
	floatingIPs
	listCount
)

// stages are the lists in the order of their dependence, those together that do not need
// each other. A vpn-interface refers to no elan-interface; but where a port is there already,
// Netvirt answers ARP for the gateway only if it finds the elan-interface when it comes to the
// vpn-interface, and does not look again.
var stages = [...][]int{{elanInstances, vpnInstances}, {interfaces}, {elanInterfaces}, {vpnInterfaces}, {floatingIPs}}

// list is one of Netvirt's lists, the only one in its container.
type list struct {
	module, container, name string
	fresh                   func() entry // to decode into
}

// top is the container's name with its module.
func (l *list) top() string { return l.module + ":" + l.container }

// listsOf are the lists of a controller that has those of l3vpn in a form.
func listsOf(f form) *[listCount]list {
	lists := [listCount]list{
		elanInstances:  {"elan", "elan-instances", "elan-instance", func() entry { return &elanInstance{} }},
		vpnInstances:   {moduleL3VPN, "vpn-instances", "vpn-instance", func() entry { return &vpnInstance{} }},
		interfaces:     {"ietf-interfaces", "interfaces", "interface", func() entry { return &ietfInterface{} }},
		elanInterfaces: {"elan", "elan-interfaces", "elan-interface", func() entry { return &elanInterface{} }},
		vpnInterfaces:  {moduleL3VPN, "vpn-interfaces", "vpn-interface", func() entry { return &vpnInterface{moved: f != nested} }},
		floatingIPs:    {"odl-nat", "floating-ip-info", "router-ports", func() entry { return &routerPorts{} }},
	}
	if f != nested {
		lists[vpnInstances].module, lists[vpnInterfaces].module = moduleMoved, moduleMoved
	}
	if f == flat {
		lists[vpnInstances].fresh = func() entry { return &flatVPNInstance{} }
	}
	return &lists
}

// transitPrefix is what the names of the vpn-instances of Transits begin with, and that of no
// namespace does.
const transitPrefix = "transit:"

// unit is what is encoded and decoded together: the entries of one interface, or one entry
// of another kind.
type unit struct {
	kind netvirt.Kind // KindTransit, KindELANInstance, KindVPNInstance, KindInterface or KindFloatingIP
	name string       // the entries' key
}

// content is what a unit has in each list; nil where it has nothing.
type content [listCount]entry

// unitOf is the unit that an object belongs to.
func unitOf(o netvirt.Object) unit {
	switch o := o.(type) {
	case netvirt.Transit:
		return unit{netvirt.KindTransit, transitPrefix + o.RouteTarget}
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
	}
	return unit{o.Key().Kind, o.Key().Name}
}

// unitAt is the unit of an entry of a list.
func unitAt(l int, key string) unit {
	switch l {
	case elanInstances:
		return unit{netvirt.KindELANInstance, key}
	case vpnInstances:
		if strings.HasPrefix(key, transitPrefix) {
			return unit{netvirt.KindTransit, key}
		}
		return unit{netvirt.KindVPNInstance, key}
	case floatingIPs:
		return unit{netvirt.KindFloatingIP, key}
	}
	return unit{netvirt.KindInterface, key}
}

// listOf is the list whose entries hold the objects of a kind.
func listOf(k netvirt.Kind) int {
	switch k {
	case netvirt.KindELANInstance:
		return elanInstances
	case netvirt.KindTransit, netvirt.KindVPNInstance:
		return vpnInstances
	case netvirt.KindInterface:
		return interfaces
	case netvirt.KindELANInterface, netvirt.KindMACEntry:
		return elanInterfaces
	case netvirt.KindVPNInterface, netvirt.KindAdjacency:
		return vpnInterfaces
	}
	return floatingIPs
}
