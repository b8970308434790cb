// Package codec turns groups of objects into rows of OVN's northbound database, and rows into the
// objects that they hold. It knows neither a connection nor what the database has.
//
// Several objects are encoded to one row, and one object to several rows. So the unit of
// encoding is the group: all objects of one port, one router, one subnet, one switch or
// one service. A group is named after one of its objects, the head.
//
// An InterfaceACL has no row. It is the membership of the port in Port_Groups, and of its
// addresses in Address_Sets. So a change of it leaves the port's row as it is.
//
//	head          group                                                  rows
//	transit       Transit                                                Logical_Router, two Load_Balancer_Groups
//	node          Node                                                   Load_Balancer_Group
//	elan-instance ELANInstance                                           Logical_Switch; with a physical network: Logical_Switch_Port, ACL
//	vpn-instance  VPNInstance                                            Logical_Router, Load_Balancer_Group; with a transit: two
//	                                                                     Logical_Router_Ports, two Logical_Router_Static_Routes
//	node-network  NodeNetwork                                            Logical_Switch, Logical_Switch_Port, ACLs; on the transit: two
//	                                                                     Logical_Router_Ports, Logical_Router_Static_Route, -Policy
//	management-   ManagementPort                                         Logical_Switch_Port, ACLs; on the transit: Logical_Router_Static_Route,
//	port                                                                 Logical_Router_Policy
//	gateway       Gateway                                                Logical_Router with two Logical_Router_Ports,
//	                                                                     Logical_Router_Static_Routes, a Policy and NATs; two
//	                                                                     Logical_Switches with four Logical_Switch_Ports and an
//	                                                                     ACL; on the transit: Logical_Router_Port, -Policies
//	subnet        Subnet                                                 Logical_Router_Port, Logical_Switch_Port, DHCP_Options;
//	                                                                     on the transit: Logical_Router_Static_Route, -Policy
//	node-port     NodePort                                               Logical_Switch_Port, Logical_Router_Static_Route, Static_MAC_Binding
//	remote-group  RemoteGroup                                            Address_Set per family
//	egress-ip     EgressIP                                               Logical_Switch, Logical_Switch_Ports; on the transit:
//	                                                                     Logical_Router_Port, Logical_Router_Policies
//	acl           ACL, ACE…                                              Port_Group, ACLs; if it isolates and logs, two Meters with
//	                                                                     a Meter_Band each
//	interface     Interface, ELANInterface, MACEntry…, VPNInterface,     Logical_Switch_Port; for an address outside its subnet:
//	              Adjacency…, InterfaceACL                               Logical_Router_Static_Routes, -Policy, Static_MAC_Binding
//	service       Service, ServiceVIP…, GatewayVIP…, FloatingIP…         Load_Balancer per protocol, and per place with other endpoints;
//	                                                                     per gateway and protocol a Load_Balancer, and for each
//	                                                                     restricted GatewayVIP two ACLs on the gateway's switch
//
// These are the rows of LayoutELAN. LayoutNode has others for nodes, elan-instances, vpn-instances and subnets, and other
// routes for addresses outside subnets; see byNode.
package codec

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// HeadOf returns the head of the group that an object belongs to.
func HeadOf(o netvirt.Object) netvirt.Key {
	switch o := o.(type) {
	case netvirt.ELANInterface:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Name}
	case netvirt.MACEntry:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Interface}
	case netvirt.VPNInterface:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Name}
	case netvirt.Adjacency:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Interface}
	case netvirt.InterfaceACL:
		return netvirt.Key{Kind: netvirt.KindInterface, Name: o.Interface}
	case netvirt.ACE:
		return aclKey(o.ACL)
	case netvirt.ServiceVIP:
		return netvirt.Service{Namespace: o.Namespace, UID: o.Service}.Key()
	case netvirt.GatewayVIP:
		return netvirt.Service{Namespace: o.Namespace, UID: o.Service}.Key()
	case netvirt.FloatingIP:
		return netvirt.Service{Namespace: o.Namespace, UID: o.ExternalID}.Key()
	}
	return o.Key()
}

// HeadOfRef returns the head of the group of an object, given a key that others refer to.
func HeadOfRef(k netvirt.Key) netvirt.Key {
	if k.Kind == netvirt.KindELANInterface || k.Kind == netvirt.KindVPNInterface {
		k.Kind = netvirt.KindInterface
	}
	return k
}

// headOrder lists the kinds of heads: a group looks up only groups of kinds before it.
var headOrder = []netvirt.Kind{
	netvirt.KindTransit, netvirt.KindNode, netvirt.KindNodeNetwork, netvirt.KindManagementPort, netvirt.KindGateway, netvirt.KindVPNInstance, netvirt.KindELANInstance,
	netvirt.KindSubnet, netvirt.KindNodePort, netvirt.KindRemoteGroup, netvirt.KindEgressIP, netvirt.KindACL, netvirt.KindInterface, netvirt.KindService,
}

// headKinds holds the kinds of heads by name.
var headKinds = func() map[string]netvirt.Kind {
	byName := map[string]netvirt.Kind{}
	for _, k := range headOrder {
		byName[k.String()] = k
	}
	return byName
}()

// Lookup returns an object of another group, or nil if there is none.
type Lookup func(netvirt.Key) netvirt.Object

// Encode returns the rows of a group. They depend also on the objects that it looks up
// in other groups: when such an object changes, the group must be encoded again.
func (c Codec) Encode(head netvirt.Key, objects netvirt.Model, look Lookup) *ovsdb.RowSet {
	set := Northbound.NewRowSet()
	switch head.Kind {
	case netvirt.KindTransit:
		c.encodeTransit(set, head, objects)
	case netvirt.KindNode:
		c.encodeNode(set, head, objects, look)
	case netvirt.KindNodeNetwork:
		c.encodeNodeNetwork(set, head, objects)
	case netvirt.KindManagementPort:
		c.encodeManagementPort(set, head, objects, look)
	case netvirt.KindGateway:
		c.encodeGateway(set, head, objects)
	case netvirt.KindELANInstance:
		c.encodeELAN(set, head, objects, look)
	case netvirt.KindVPNInstance:
		c.encodeVPN(set, head, objects)
	case netvirt.KindSubnet:
		c.encodeSubnet(set, head, objects, look)
	case netvirt.KindNodePort:
		c.encodeNodePort(set, head, objects)
	case netvirt.KindInterface:
		c.encodePort(set, head, objects, look)
	case netvirt.KindRemoteGroup:
		c.encodeRemoteGroup(set, head, objects)
	case netvirt.KindEgressIP:
		c.encodeEgressIP(set, head, objects, look)
	case netvirt.KindACL:
		c.encodeACL(set, head, objects, look)
	case netvirt.KindService:
		c.encodeService(set, head, objects, look)
	}
	return set
}

// Decode returns the objects that a row of a group holds; each is complete. No row holds an
// InterfaceACL. It does not
// detect damage: load does, by encoding the objects of the group again.
func (c Codec) Decode(head netvirt.Key, r ovsdb.Row) []netvirt.Object {
	switch r := r.Value.(type) {
	case *nb.LogicalRouter:
		return decodeRouter(head, r)
	case *nb.LogicalSwitch:
		return c.decodeSwitch(head, r)
	case *nb.LogicalRouterPort:
		return decodeGatewayPort(head, r)
	case *nb.LogicalSwitchPort:
		return decodeSwitchPort(head, r)
	case *nb.LoadBalancer:
		return decodeService(head, r)
	case *nb.LoadBalancerGroup:
		return c.decodeNode(r)
	case *nb.PortGroup:
		return decodePortGroup(head, r)
	case *nb.DHCPOptions:
		return decodeDHCPOptions(head, r)
	case *nb.AddressSet:
		return decodeRemoteGroup(head, r)
	}
	return nil
}

// damagedMark marks an object that was read from damaged rows: it is the value of a field
// that no wanted object can have. A damaged subnet has no gateway instead. So the object
// differs from every wanted object, and is written again or deleted.
const damagedMark = "(damaged)"

// Damaged returns the object that Read returns for a group whose rows an external writer
// has changed: its head, as far as it is known, with damagedMark. A transit has no field
// for the mark and is not read. The result is never encoded.
func Damaged(head netvirt.Key, known netvirt.Object) (netvirt.Object, bool) {
	var o netvirt.Object
	switch head.Kind {
	case netvirt.KindNode, netvirt.KindManagementPort, netvirt.KindGateway:
		o = damagedOfNode(head)
	case netvirt.KindNodeNetwork:
		prefix, err := netip.ParsePrefix(head.Name)
		if err != nil {
			return nil, false
		}
		o = netvirt.NodeNetwork{Prefix: prefix, Transit: damagedMark}
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
	case netvirt.KindNodePort:
		o = netvirt.NodePort{ELAN: head.Name, Chassis: damagedMark}
	case netvirt.KindInterface:
		namespace, _, _, _ := netvirt.ParseInterfaceName(head.Name)
		o = netvirt.Interface{Name: head.Name, Namespace: namespace, ParentInterface: damagedMark}
	case netvirt.KindRemoteGroup:
		o = netvirt.RemoteGroup{Name: head.Name, Namespace: damagedMark}
	case netvirt.KindEgressIP:
		o = netvirt.EgressIP{Name: head.Name, Transit: damagedMark}
	case netvirt.KindACL:
		acl, _ := known.(netvirt.ACL)
		o = netvirt.ACL{Name: head.Name, Namespace: acl.Namespace, Isolates: damagedMark}
	case netvirt.KindService:
		namespace, uid := parseServiceName(head.Name)
		o = netvirt.Service{UID: uid, Namespace: namespace, Name: damagedMark}
	default:
		return nil, false
	}
	return o, o.Key() == head
}

// damagedOfNode is Damaged for a kind whose key is a node. If the key has no address, the key of the result differs.
func damagedOfNode(head netvirt.Key) netvirt.Object {
	node, _ := netip.ParseAddr(head.Name)
	switch head.Kind {
	case netvirt.KindManagementPort:
		return netvirt.ManagementPort{Node: node, Chassis: damagedMark}
	case netvirt.KindGateway:
		return netvirt.Gateway{Node: node, Chassis: damagedMark}
	}
	return netvirt.Node{Address: node, HostName: damagedMark}
}

// IsDamaged reports whether Damaged returned an object.
func IsDamaged(o netvirt.Object) bool {
	switch o := o.(type) {
	case netvirt.Node:
		return o.HostName == damagedMark
	case netvirt.NodeNetwork:
		return o.Transit == damagedMark
	case netvirt.ManagementPort:
		return o.Chassis == damagedMark
	case netvirt.Gateway:
		return o.Chassis == damagedMark
	case netvirt.ELANInstance:
		return o.SegmentType == damagedMark
	case netvirt.VPNInstance:
		return o.RouteDistinguisher == damagedMark
	case netvirt.Subnet:
		return !o.Gateway.IsValid()
	case netvirt.NodePort:
		return o.Chassis == damagedMark
	case netvirt.Interface:
		return o.ParentInterface == damagedMark
	case netvirt.RemoteGroup:
		return o.Namespace == damagedMark
	case netvirt.EgressIP:
		return o.Transit == damagedMark
	case netvirt.ACL:
		return o.Isolates == damagedMark
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

// lookVPN looks up a vpn-instance.
func lookVPN(look Lookup, name string) (netvirt.VPNInstance, bool) {
	o, ok := look(vpnKey(name)).(netvirt.VPNInstance)
	return o, ok
}

// lookVPNOf looks up the vpn-instance of a namespace.
func lookVPNOf(look Lookup, namespace string) (netvirt.VPNInstance, bool) {
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
