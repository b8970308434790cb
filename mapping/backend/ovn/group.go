package ovn

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Several objects make one row, and one object several. So the unit of encoding
// is the group: all objects that are of one port, one router, one subnet, one
// switch or one service. A group is named after the object at its head.
//
//	head          group                                                  rows
//	transit       Transit                                                Logical_Router, Load_Balancer_Group
//	elan-instance ELANInstance                                           Logical_Switch
//	vpn-instance  VPNInstance                                            Logical_Router, Load_Balancer_Group; to the transit: two
//	                                                                     Logical_Router_Ports, two Logical_Router_Static_Routes
//	node-network  NodeNetwork                                            Logical_Switch, Logical_Switch_Port; of the transit: two
//	                                                                     Logical_Router_Ports, Logical_Router_Static_Route, -Policy
//	management-   ManagementPort                                         Logical_Switch_Port, ACLs; on the transit: Logical_Router_Static_Route,
//	port                                                                 Logical_Router_Policy
//	subnet        Subnet                                                 Logical_Router_Port, Logical_Switch_Port, DHCP_Options;
//	                                                                     on the transit: Logical_Router_Static_Route, -Policy
//	interface     Interface, ELANInterface, MACEntry…, VPNInterface,     Logical_Switch_Port; for an address outside its subnet:
//	              Adjacency…                                             Logical_Router_Static_Routes, -Policy, Static_MAC_Binding
//	service       Service, ServiceVIP…, FloatingIP…                      Load_Balancer per protocol

// headOf is the head of the group that an object belongs to.
func headOf(o netvirt.Object) netvirt.Key {
	switch o := o.(type) {
	case netvirt.ELANInterface:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Name}
	case netvirt.MACEntry:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Interface}
	case netvirt.VPNInterface:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Name}
	case netvirt.Adjacency:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Interface}
	case netvirt.ServiceVIP:
		return netvirt.Service{Namespace: o.Namespace, UID: o.Service}.Key()
	case netvirt.FloatingIP:
		return netvirt.Service{Namespace: o.Namespace, UID: o.ExternalID}.Key()
	}
	return o.Key()
}

// headOfRef is the head of the group of an object that others refer to.
func headOfRef(k netvirt.Key) netvirt.Key {
	if k.Kind == netvirt.KindELANInterface || k.Kind == netvirt.KindVPNInterface {
		k.Kind = netvirt.KindInterface
	}
	return k
}

// headOrder lists the kinds of heads so that a group looks up only groups
// before it.
var headOrder = []netvirt.Kind{
	netvirt.KindTransit, netvirt.KindNodeNetwork, netvirt.KindManagementPort, netvirt.KindVPNInstance, netvirt.KindELANInstance,
	netvirt.KindSubnet, netvirt.KindInterface, netvirt.KindService,
}

// headKinds are the kinds of heads by name.
var headKinds = func() map[string]netvirt.Kind {
	byName := map[string]netvirt.Kind{}
	for _, k := range headOrder {
		byName[k.String()] = k
	}
	return byName
}()

// lookup returns an object of another group, nil when there is none.
type lookup func(netvirt.Key) netvirt.Object

// encode returns the rows of a group. What it looks up in other groups decides
// about the rows too, so a change there is a reason to encode anew.
func (c codec) encode(head netvirt.Key, objects netvirt.Model, look lookup) *rowSet {
	set := &rowSet{}
	switch head.Kind {
	case netvirt.KindTransit:
		c.encodeTransit(set, head, objects)
	case netvirt.KindNodeNetwork:
		c.encodeNodeNetwork(set, head, objects)
	case netvirt.KindManagementPort:
		c.encodeManagementPort(set, head, objects, look)
	case netvirt.KindELANInstance:
		c.encodeELAN(set, head, objects, look)
	case netvirt.KindVPNInstance:
		c.encodeVPN(set, head, objects)
	case netvirt.KindSubnet:
		c.encodeSubnet(set, head, objects, look)
	case netvirt.KindInterface:
		c.encodePort(set, head, objects, look)
	case netvirt.KindService:
		c.encodeService(set, head, objects, look)
	}
	return set
}

// decode returns the objects that a row of a group tells of; the row that tells
// of an object has all of it. It does not judge the row: what encode would not
// make of all objects of the group is damaged.
func (c codec) decode(head netvirt.Key, r row) []netvirt.Object {
	switch r := r.(type) {
	case *nb.LogicalRouter:
		return decodeRouter(head, r)
	case *nb.LogicalSwitch:
		return decodeSwitch(head, r)
	case *nb.LogicalRouterPort:
		return decodeSubnet(head, r)
	case *nb.LogicalSwitchPort:
		return decodeSwitchPort(head, r)
	case *nb.LoadBalancer:
		return decodeService(head, r)
	}
	return nil
}

// damagedMark stands in an object that is read from damaged rows, where no
// object has it; such a subnet has no gateway instead. So the object differs
// from what is wanted, and is written anew or deleted.
const damagedMark = "(damaged)"

// damaged is what is read of a group whose rows another hand has changed: its
// head, as far as it is known, with damagedMark. A transit has no place for the
// mark and is not read. Nothing is encoded of the result.
func damaged(head netvirt.Key, known netvirt.Object) (netvirt.Object, bool) {
	var o netvirt.Object
	switch head.Kind {
	case netvirt.KindNodeNetwork:
		prefix, err := netip.ParsePrefix(head.Name)
		if err != nil {
			return nil, false
		}
		o = netvirt.NodeNetwork{Prefix: prefix, Transit: damagedMark}
	case netvirt.KindManagementPort:
		node, err := netip.ParseAddr(head.Name)
		if err != nil {
			return nil, false
		}
		o = netvirt.ManagementPort{Node: node, Chassis: damagedMark}
	case netvirt.KindELANInstance:
		o = netvirt.ELANInstance{Name: head.Name, SegmentType: damagedMark}
	case netvirt.KindVPNInstance:
		vpn, _ := known.(netvirt.VPNInstance)
		o = netvirt.VPNInstance{Name: head.Name, Namespace: vpn.Namespace, RouteDistinguisher: damagedMark}
	case netvirt.KindSubnet:
		elan, prefix, ok := parseSubnetName(head.Name)
		if !ok {
			return nil, false
		}
		subnet, _ := known.(netvirt.Subnet)
		o = netvirt.Subnet{ELAN: elan, VPN: subnet.VPN, Prefix: prefix}
	case netvirt.KindInterface:
		namespace, _, _, _ := netvirt.ParseInterfaceName(head.Name)
		o = netvirt.Interface{Name: head.Name, Namespace: namespace, ParentInterface: damagedMark}
	case netvirt.KindService:
		namespace, uid := parseServiceName(head.Name)
		o = netvirt.Service{UID: uid, Namespace: namespace, Name: damagedMark}
	default:
		return nil, false
	}
	return o, o.Key() == head
}

func isDamaged(o netvirt.Object) bool {
	switch o := o.(type) {
	case netvirt.NodeNetwork:
		return o.Transit == damagedMark
	case netvirt.ManagementPort:
		return o.Chassis == damagedMark
	case netvirt.ELANInstance:
		return o.SegmentType == damagedMark
	case netvirt.VPNInstance:
		return o.RouteDistinguisher == damagedMark
	case netvirt.Subnet:
		return !o.Gateway.IsValid()
	case netvirt.Interface:
		return o.ParentInterface == damagedMark
	case netvirt.Service:
		return o.Name == damagedMark
	}
	return false
}

// each returns the objects of type T in key order.
func each[T netvirt.Object](objects netvirt.Model) []T {
	var all []T
	for _, o := range objects {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b T) int { return a.Key().Compare(b.Key()) })
	return all
}

// head returns the object at the head of a group.
func head[T netvirt.Object](objects netvirt.Model, k netvirt.Key) (T, bool) {
	o, ok := objects[k].(T)
	return o, ok
}

// lookVPN looks a vpn-instance up.
func lookVPN(look lookup, name string) (netvirt.VPNInstance, bool) {
	o, ok := look(vpnKey(name)).(netvirt.VPNInstance)
	return o, ok
}

// lookVPNOf looks the vpn-instance of a namespace up.
func lookVPNOf(look lookup, namespace string) (netvirt.VPNInstance, bool) {
	for _, name := range netvirt.VPNNames(namespace) {
		if o, ok := lookVPN(look, name); ok && o.Namespace == namespace {
			return o, true
		}
	}
	return netvirt.VPNInstance{}, false
}

func transitKey(name string) netvirt.Key {
	return netvirt.Key{Kind: netvirt.KindTransit, Name: name}
}

func vpnKey(name string) netvirt.Key {
	return netvirt.Key{Kind: netvirt.KindVPNInstance, Name: name}
}

func elanKey(name string) netvirt.Key {
	return netvirt.Key{Kind: netvirt.KindELANInstance, Name: name}
}

func nodeNetworkKey(prefix netip.Prefix) netvirt.Key {
	return netvirt.NodeNetwork{Prefix: prefix}.Key()
}

// sortedKeys lists a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
