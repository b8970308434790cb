package identity

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

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
		elan, prefix, ok := ParseSubnetName(head.Name)
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
		namespace, uid := ParseServiceName(head.Name)
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

// Outdated returns an object whose row has the form of an earlier release, as Read returns it: it has damagedMark, so it is written
// again. An interface keeps the fields that confirm its pod.
func Outdated(o netvirt.Object) netvirt.Object {
	if i, is := o.(netvirt.Interface); is {
		i.ParentInterface = damagedMark
		return i
	}
	mark, _ := Damaged(o.Key(), o)
	return mark
}
