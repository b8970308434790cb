package identity

import (
	"net/netip"
	"strings"

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
		return netvirt.ACL{Name: o.ACL}.Key()
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

// ParseSubnetName splits the name in a subnet's key.
func ParseSubnetName(name string) (elan string, prefix netip.Prefix, ok bool) {
	i := strings.LastIndexByte(name, ' ')
	if i < 0 {
		return "", netip.Prefix{}, false
	}
	prefix, err := netip.ParsePrefix(name[i+1:])
	return name[:i], prefix, err == nil
}

// ParseServiceName splits the name in a service's key.
func ParseServiceName(name string) (namespace, uid string) {
	i := strings.LastIndexByte(name, ' ')
	return name[:max(i, 0)], name[i+1:]
}
