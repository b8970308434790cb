package odl

import (
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt/netvirtjson"
)

// damagedMark stands in an object that is read of an entry that another hand has changed,
// where no object has it; such a floating IP has no external address instead. So the object
// differs from what is wanted, and is written anew or deleted.
const damagedMark = "(damaged)"

// decode returns the objects that the entries of a unit say. What encode would not make of
// them is damaged.
func (c *codec) decode(u unit, have content) netvirt.Model {
	objects := netvirt.Model{}
	switch u.kind {
	case netvirt.KindELANInstance:
		decodeELANInstance(objects, have)
	case netvirt.KindTransit:
		if have[vpnInstances] != nil {
			objects.Add(netvirt.Transit{RouteTarget: strings.TrimPrefix(u.name, transitPrefix)})
		}
	case netvirt.KindVPNInstance:
		c.decodeVPNInstance(objects, have)
	case netvirt.KindFloatingIP:
		decodeFloatingIPs(objects, have)
	default:
		c.decodeInterface(objects, u.name, have)
	}
	again, err := c.encode(u, objects, have)
	for l, e := range have {
		if e != nil && (err != nil || !same(e, again[l])) {
			damage(objects, l, u.name)
		}
	}
	return objects
}

// damage puts what damaged entries are read as in the place of the object at the head.
func damage(objects netvirt.Model, l int, name string) {
	namespace, pod, _, _ := netvirt.ParseInterfaceName(name)
	switch l {
	case elanInstances:
		objects.Add(netvirt.ELANInstance{Name: name, SegmentType: damagedMark})
	case vpnInstances:
		if route, ok := strings.CutPrefix(name, transitPrefix); ok {
			delete(objects, netvirt.Transit{RouteTarget: route}.Key()) // it has no place for the mark
			return
		}
		was, _ := objects[netvirt.Key{Kind: netvirt.KindVPNInstance, Name: name}].(netvirt.VPNInstance)
		objects.Add(netvirt.VPNInstance{Name: name, Namespace: was.Namespace, RouteDistinguisher: damagedMark})
	case interfaces:
		was, _ := objects[netvirt.Key{Kind: netvirt.KindInterface, Name: name}].(netvirt.Interface)
		objects.Add(netvirt.Interface{Name: name, Namespace: namespace, Pod: pod, PodUID: was.PodUID, UID: was.UID, ParentInterface: damagedMark})
	case elanInterfaces:
		objects.Add(netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: damagedMark})
	case vpnInterfaces:
		objects.Add(netvirt.VPNInterface{Name: name, Namespace: namespace, VPN: damagedMark})
	case floatingIPs:
		for k, o := range objects {
			f := o.(netvirt.FloatingIP)
			f.External = netip.Addr{}
			objects[k] = f
		}
	}
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
	}
	return false
}

func decodeELANInstance(objects netvirt.Model, have content) {
	e, ok := have[elanInstances].(*elanInstance)
	if !ok {
		return
	}
	objects.Add(netvirt.ELANInstance{
		Name: e.Name, SegmentationID: e.SegmentationID,
		SegmentType: netvirt.SegmentType(strings.TrimPrefix(e.SegmentType, "elan:")),
	})
}

func (c *codec) decodeVPNInstance(objects netvirt.Model, have content) {
	switch e := have[vpnInstances].(type) {
	case *vpnInstance:
		namespace, ok := find(said(e.Description), "namespace")
		if !ok {
			namespace = e.Name
		}
		objects.Add(decodeVPN(e, namespace, e.IPv4.RouteDistinguishers))
	case *flatVPNInstance:
		objects.Add(decodeVPN(e, c.namespaceOf(e.Name), e.RouteDistinguishers))
	}
}

func decodeVPN(e entry, namespace string, distinguishers []string) netvirt.VPNInstance {
	o := netvirt.VPNInstance{Name: e.key(), Namespace: namespace, Transit: transitOf(e)}
	if len(distinguishers) > 0 {
		o.RouteDistinguisher = distinguishers[0]
	}
	return o
}

// namespaceOf is the namespace of a vpn-instance that has no place to say it: where its name
// is a shortened one, that of an elan-instance.
func (c *codec) namespaceOf(vpn string) string {
	if elans := c.elans(vpn); len(elans) > 0 {
		_, namespace, _ := netvirt.ParseELANName(elans[0])
		return namespace
	}
	return vpn
}

func (c *codec) decodeInterface(objects netvirt.Model, name string, have content) {
	namespace, pod, _, _ := netvirt.ParseInterfaceName(name)
	if e, ok := have[interfaces].(*ietfInterface); ok {
		words := said(e.Description)
		o := netvirt.Interface{Name: name, Namespace: namespace, Pod: pod, ParentInterface: e.Parent}
		o.PodUID, _ = find(words, "pod")
		if o.UID, ok = find(words, "interface"); !ok {
			o.UID = o.PodUID
		}
		objects.Add(o)
	}
	elan := ""
	if e, ok := have[elanInterfaces].(*elanInterface); ok {
		elan = e.ELAN
		chassis, _ := find(said(e.Description), "chassis")
		objects.Add(netvirt.ELANInterface{Name: name, Namespace: namespace, ELAN: elan, Chassis: chassis})
		decodeMACEntries(objects, namespace, e)
	}
	if e, ok := have[vpnInterfaces].(*vpnInterface); ok {
		o := netvirt.VPNInterface{Name: name, Namespace: namespace}
		if len(e.VPNs) > 0 {
			o.VPN = e.VPNs[0].Name
		}
		if strings.HasPrefix(o.VPN, transitPrefix) {
			o.VPN = netvirt.VPNName(namespace)
		}
		objects.Add(o)
		for _, a := range e.Adjacencies {
			c.decodeAdjacency(objects, namespace, elan, e.Name, a)
		}
	}
}

func decodeMACEntries(objects netvirt.Model, namespace string, e *elanInterface) {
	add := func(mac, address string) {
		if address, err := netip.ParseAddr(address); err == nil {
			objects.Add(netvirt.MACEntry{Interface: e.Name, Namespace: namespace, MAC: mac, Address: address})
		}
	}
	for _, m := range e.MACEntries {
		add(m.MAC, m.Address)
	}
	for _, w := range said(e.Description) {
		if address, mac, ok := strings.Cut(w.value, "@"); ok && w.name == "also" {
			add(mac, address)
		}
	}
}

func (c *codec) decodeAdjacency(objects netvirt.Model, namespace, elan, name string, a adjacency) {
	prefix, err := netip.ParsePrefix(a.Address)
	if err != nil {
		return // the entry is damaged then
	}
	o := netvirt.Adjacency{Interface: name, Namespace: namespace, Address: prefix.Addr(), MAC: a.MAC}
	if gateway, err := netip.ParseAddr(a.Gateway); err == nil {
		o.Gateway = gateway
		on := c.subnetOf(o, elan, a.SubnetID)
		o.ELAN, o.Network = on.elan, on.prefix
	}
	objects.Add(o)
}

// subnet is what a subnet_id, a hash, stands for.
type subnet struct {
	elan   string
	prefix netip.Prefix
}

// subnetOf finds out what the subnet_id of an adjacency stands for: a prefix around its
// gateway, on the elan-instance of its interface, or another of its namespace. None fits
// where another hand has changed the one or the other.
func (c *codec) subnetOf(a netvirt.Adjacency, elan, id string) subnet {
	if s, ok := c.subnets[id]; ok && s.prefix.Contains(a.Gateway) {
		return s
	}
	for _, a.ELAN = range append([]string{elan}, c.elans(netvirt.VPNName(a.Namespace))...) {
		for bits := a.Gateway.BitLen(); bits >= 0; bits-- {
			a.Network = netip.PrefixFrom(a.Gateway, bits).Masked()
			if netvirtjson.SubnetID(a) == id {
				s := subnet{a.ELAN, a.Network}
				c.subnets[id] = s
				return s
			}
		}
	}
	return subnet{}
}

func decodeFloatingIPs(objects netvirt.Model, have content) {
	e, ok := have[floatingIPs].(*routerPorts)
	if !ok {
		return
	}
	for _, p := range e.Ports {
		namespace, _, _, _ := netvirt.ParseInterfaceName(p.Name)
		for _, n := range p.Map {
			internal, err := netip.ParseAddr(n.Internal)
			if err != nil {
				continue // the entry is damaged then
			}
			external, _ := netip.ParseAddr(n.External)
			objects.Add(netvirt.FloatingIP{
				Router: e.Router, Port: p.Name, Namespace: namespace, Internal: internal, External: external, ExternalID: n.ExternalID,
			})
		}
	}
}
