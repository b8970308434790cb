// Package codec turns groups of objects into rows of OVN's northbound database, and rows into the
// objects that they hold. It knows neither a connection nor what the database has. Package identity says to which group an object
// or a row belongs, and gives the rows their UUIDs and marks.
//
// Several objects are encoded to one row, and one object to several rows. So the unit of
// encoding is the group: all objects of one port, one router, one subnet, one switch or
// one service. A group is named after one of its objects, the head (see identity.HeadOf).
//
// An InterfaceACL has no row. It is the membership of the port in Port_Groups, and of its
// addresses in Address_Sets. So a change of it leaves the port's row as it is. Package acl adds
// the members, and the rows of acls and remote groups.
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

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/acl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Codec turns groups of objects into rows, and back, for one owner.
type Codec struct {
	identity.Owner
	Layout Layout
}

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
		acl.EncodeRemoteGroup(c.Owner, set, head, objects)
	case netvirt.KindEgressIP:
		c.encodeEgressIP(set, head, objects, look)
	case netvirt.KindACL:
		acl.Encode(c.Owner, set, head, objects, look)
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
		return acl.DecodeRemoteGroup(head, r)
	}
	return nil
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
