package codec

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// damagedMark marks an object that was read from an entry that an external writer has
// changed: it is the value of a field that no wanted object can have. A damaged floating IP
// has no external address instead. So the object differs from every wanted object, and is
// written again or deleted.
const damagedMark = "(damaged)"

// Decode appends the objects that the entries of a unit hold to a slice, which it may
// change.
func (c *codec) Decode(u Unit, have Content, objects []netvirt.Object) []netvirt.Object {
	switch u.Kind {
	case netvirt.KindELANInstance:
		objects = decodeELANInstance(objects, have)
	case netvirt.KindTransit:
		if have[VPNInstances] != nil {
			objects = append(objects, netvirt.Transit{RouteTarget: strings.TrimPrefix(u.Name, TransitPrefix)})
		}
	case netvirt.KindVPNInstance:
		objects = c.decodeVPNInstance(objects, have)
	case netvirt.KindNodeNetwork:
		objects = decodeNetwork(objects, have)
	case netvirt.KindManagementPort:
		objects = decodeManagementPort(objects, have)
	case netvirt.KindNodePort:
		objects = decodeNodePort(objects, have)
	case netvirt.KindACL:
		objects = decodeAccessList(objects, have)
	case netvirt.KindFloatingIP:
		objects = decodeFloatingIPs(objects, have)
	default:
		objects = c.decodeInterface(objects, u.Name, have)
	}
	return c.damaged(u, have, objects)
}

// damaged replaces the objects of damaged entries: those that the objects are encoded to differ from what the unit has. A port of a
// node is also damaged if an entry of it is missing, and an interface if a list that permits everything is missing or changed.
func (c *codec) damaged(u Unit, have Content, objects []netvirt.Object) []netvirt.Object {
	again, err := c.Encode(u, objects, have)
	if e, ok := have[Interfaces].(*IETFInterface); ok && c.lacksOpenList(e) {
		objects = damage(objects, Interfaces, u)
	}
	for l, e := range have {
		if e != nil && (err != nil || !Same(e, again[l])) || e == nil && again[l] != nil && OfNode(u.Kind) {
			objects = damage(objects, l, u)
		}
	}
	return objects
}

// damage replaces the main object of a damaged entry by one with the mark.
func damage(objects []netvirt.Object, l int, u Unit) []netvirt.Object {
	name := u.Name
	switch {
	case OfNode(u.Kind):
		return append(objects[:0], damagedPort(name))
	case u.Kind == netvirt.KindNodeNetwork:
		prefix, _ := parseNetworkName(name)
		return append(objects[:0], netvirt.NodeNetwork{Prefix: prefix, Transit: damagedMark})
	}
	namespace, pod, _, _ := netvirt.ParseInterfaceName(name)
	switch l {
	case ELANInstances:
		return put(objects, netvirt.ELANInstance{Name: name, SegmentType: damagedMark})
	case VPNInstances:
		if strings.HasPrefix(name, TransitPrefix) {
			return nil // a Transit has no field for the mark
		}
		was, _ := head[netvirt.VPNInstance](objects)
		return put(objects, netvirt.VPNInstance{Name: name, Namespace: was.Namespace, RouteDistinguisher: damagedMark})
	case AccessLists:
		for i, o := range objects {
			switch o := o.(type) {
			case netvirt.ACL:
				o.Isolates = damagedMark
				objects[i] = o
			case netvirt.RemoteGroup:
				o.Namespace = damagedMark
				objects[i] = o
			}
		}
	case Interfaces:
		was, _ := head[netvirt.Interface](objects)
		return put(objects, netvirt.Interface{Name: name, Namespace: namespace, Pod: pod, PodUID: was.PodUID, UID: was.UID, ParentInterface: damagedMark})
	case ELANInterfaces:
		return put(objects, netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: damagedMark})
	case VPNInterfaces:
		return put(objects, netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: damagedMark})
	case floatingIPs:
		for i, o := range objects {
			f := o.(netvirt.FloatingIP)
			f.External = netip.Addr{}
			objects[i] = f
		}
	}
	return objects
}

// put replaces the object of the same type, or appends the object if there is none.
func put[T netvirt.Object](objects []netvirt.Object, o T) []netvirt.Object {
	for i := range objects {
		if _, same := objects[i].(T); same {
			objects[i] = o
			return objects
		}
	}
	return append(objects, o)
}

func isDamaged(o netvirt.Object) bool {
	switch o := o.(type) {
	case netvirt.ELANInstance:
		return o.SegmentType == damagedMark
	case netvirt.VPNInstance:
		return o.RouteDistinguisher == damagedMark
	case netvirt.Interface:
		return o.ParentInterface == damagedMark
	case netvirt.ELANInterface:
		return o.ELAN == damagedMark
	case netvirt.VPNInterface:
		return o.VPN == damagedMark
	case netvirt.FloatingIP:
		return !o.External.IsValid()
	case netvirt.ACL:
		return o.Isolates == damagedMark
	case netvirt.RemoteGroup:
		return o.Namespace == damagedMark
	case netvirt.NodeNetwork:
		return o.Transit == damagedMark
	case netvirt.ManagementPort:
		return o.Chassis == damagedMark
	case netvirt.NodePort:
		return o.Chassis == damagedMark
	}
	return false
}

func decodeELANInstance(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[ELANInstances].(*ELANInstance)
	if !ok {
		return objects
	}
	return append(objects, netvirt.ELANInstance{
		Name: e.Name, SegmentationID: e.SegmentationID,
		SegmentType: netvirt.SegmentType(strings.TrimPrefix(e.SegmentType, "elan:")),
	})
}

func (c *codec) decodeVPNInstance(objects []netvirt.Object, have Content) []netvirt.Object {
	switch e := have[VPNInstances].(type) {
	case *vpnInstance:
		namespace, ok := find(e.Description, "namespace")
		if !ok {
			namespace = e.Name
		}
		return append(objects, decodeVPN(e, namespace, e.IPv4.RouteDistinguishers))
	case *flatVPNInstance:
		return append(objects, decodeVPN(e, c.namespaceOf(e.Name), e.RouteDistinguishers))
	}
	return objects
}

func decodeVPN(e Entry, namespace string, distinguishers []string) netvirt.VPNInstance {
	o := netvirt.VPNInstance{Name: e.Key(), Namespace: namespace, Transit: transitOf(e)}
	if len(distinguishers) > 0 {
		o.RouteDistinguisher = distinguishers[0]
	}
	return o
}

// namespaceOf returns the namespace of a vpn-instance without a description: if its name is
// a shortened one, the namespace of one of its elan-instances.
func (c *codec) namespaceOf(vpn string) string {
	of := vpn
	for _, elan := range c.elans(vpn) {
		_, namespace, _ := netvirt.ParseELANName(elan)
		if netvirt.VPNName(namespace) == vpn {
			return namespace
		}
		of = namespace // by an older name
	}
	return of
}

func (c *codec) decodeInterface(objects []netvirt.Object, name string, have Content) []netvirt.Object {
	namespace, pod, _, _ := netvirt.ParseInterfaceName(name)
	if e, ok := have[Interfaces].(*IETFInterface); ok {
		o := netvirt.Interface{Name: name, Namespace: namespace, Pod: pod, ParentInterface: e.Parent}
		o.PodUID, _ = find(e.Description, "pod")
		if o.UID, ok = find(e.Description, "interface"); !ok {
			o.UID = o.PodUID
		}
		dhcp, _ := find(e.Description, "dhcp")
		o.DHCP = dhcp == "true"
		objects = append(objects, o)
		if acl, ok := interfaceACLOf(e); ok {
			objects = append(objects, acl)
		}
	}
	elan := ""
	if e, ok := have[ELANInterfaces].(*ELANInterface); ok {
		elan = e.ELAN
		chassis, _ := find(e.Description, "chassis")
		objects = append(objects, netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan, Chassis: chassis})
		objects = decodeMACEntries(objects, namespace, e)
	}
	if e, ok := have[VPNInterfaces].(*VPNInterface); ok {
		o := netvirt.VPNInterface{Name: name, Namespace: namespace}
		if len(e.VPNs) > 0 {
			o.VPN = e.VPNs[0].Name
		}
		if strings.HasPrefix(o.VPN, TransitPrefix) {
			o.VPN = c.vpnOf(namespace)
		}
		objects = append(objects, o)
		for _, a := range e.Adjacencies {
			objects = c.decodeAdjacency(objects, namespace, elan, e.Name, a)
		}
	}
	return objects
}

// decodeMACEntries decodes each address once: an entry with an address twice is damaged.
func decodeMACEntries(objects []netvirt.Object, namespace string, e *ELANInterface) []netvirt.Object {
	add := func(mac, text string) {
		address, err := netip.ParseAddr(text)
		if err != nil || slices.ContainsFunc(objects, func(o netvirt.Object) bool {
			m, ok := o.(netvirt.MACEntry)
			return ok && m.Address == address
		}) {
			return
		}
		objects = append(objects, netvirt.MACEntry{Interface: e.Name, Namespace: namespace, MAC: mac, Address: address})
	}
	for _, m := range e.MACEntries {
		add(m.MAC, m.Address)
	}
	for name, value := range words(e.Description) {
		if address, mac, ok := strings.Cut(value, "@"); ok && name == "also" {
			add(mac, address)
		}
	}
	return objects
}

func (c *codec) decodeAdjacency(objects []netvirt.Object, namespace, elan, name string, a adjacency) []netvirt.Object {
	prefix, err := netip.ParsePrefix(a.Address)
	if err != nil {
		return objects // the entry is damaged then
	}
	o := netvirt.Adjacency{Interface: name, Namespace: namespace, Address: prefix.Addr(), MAC: a.MAC}
	if gateway, err := netip.ParseAddr(a.Gateway); err == nil {
		o.Gateway = gateway
		on := c.subnetOf(o, elan, a.SubnetID)
		o.ELAN, o.Network = on.elan, on.prefix
	}
	return append(objects, o)
}

// subnetOf finds the subnet of an adjacency by its subnet_id, which is a hash: a prefix
// around its gateway, on the elan-instance of its interface or on another one of its
// namespace. It finds none if an external writer has changed subnet_id or gateway.
func (c *codec) subnetOf(a netvirt.Adjacency, elan, id string) subnet {
	if s, ok := c.Subnets.named(id); ok && s.prefix.Contains(a.Gateway) {
		return s
	}
	for _, elan := range append([]string{elan}, c.elans(c.vpnOf(a.Namespace))...) {
		if s, found := c.Subnets.find(id, elan, a.Gateway); found {
			return s
		}
	}
	return subnet{}
}

func decodeFloatingIPs(objects []netvirt.Object, have Content) []netvirt.Object {
	e, ok := have[floatingIPs].(*routerPorts)
	if !ok {
		return objects
	}
	for _, p := range e.Ports {
		namespace, _, _, _ := netvirt.ParseInterfaceName(p.Name)
		for _, n := range p.Map {
			internal, err := netip.ParseAddr(n.Internal)
			if err != nil {
				continue // the entry is damaged then
			}
			external, _ := netip.ParseAddr(n.External)
			objects = append(objects, netvirt.FloatingIP{
				Router: e.Router, Port: p.Name, Namespace: namespace, Internal: internal, External: external, ExternalID: n.ExternalID,
			})
		}
	}
	return objects
}
