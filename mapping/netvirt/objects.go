package netvirt

import (
	"fmt"
	"net/netip"
)

// CommonRouteTarget is the route target that every vpn-instance imports and exports,
// beside its own, under isolation "none". Route distinguishers of vpn-instances begin at
// 100:2.
const CommonRouteTarget = "100:1"

// Transit connects the vpn-instances that share RouteTarget (OVN: the cluster router). It
// exists under isolation "none".
type Transit struct {
	RouteTarget string // "100:1"
}

// SegmentType is an identity derived from elan:segment-type-base, without its prefix.
type SegmentType string

// The segment types of elan:segment-type-base.
const (
	SegmentVXLAN SegmentType = "segment-type-vxlan"
	SegmentVLAN  SegmentType = "segment-type-vlan"
	SegmentFlat  SegmentType = "segment-type-flat"
	SegmentGRE   SegmentType = "segment-type-gre"
)

// ELANInstance is a layer 2 network: the pods of one namespace on one node
// (elan:elan-instances/elan-instance).
type ELANInstance struct {
	Name           string // ELANName(node, namespace)
	SegmentType    SegmentType
	SegmentationID uint32 // 0 if the segment type has none
	// PhysicalNetwork is the name of the physical network of a VLAN or FLAT; empty for an overlay.
	PhysicalNetwork string
	// Subnets are the subnets of PhysicalNetwork. Packets that come in from it with other addresses are dropped.
	Subnets PrefixList
}

// VPNInstance is a layer 3 network: the pods of one namespace
// (l3vpn:vpn-instances/vpn-instance). Its own route target is its route
// distinguisher.
type VPNInstance struct {
	Name               string // one of VPNNames(Namespace)
	Namespace          string
	RouteDistinguisher string // "100:n"
	// Transit is the route target that other vpn-instances share; empty if the
	// vpn-instance is isolated.
	Transit string
}

// Subnet is a block of addresses on an elan-instance, reached through a vpn-instance. A
// Prefix that contains only Gateway (/32, /128) contains no pods: the pods behind the
// gateway have host routes.
type Subnet struct {
	ELAN      string
	VPN       string
	Prefix    netip.Prefix // masked; unique within the elan-instance
	Gateway   netip.Addr   // inside Prefix
	DNS       AddrList
	LeaseTime uint32 // seconds, for DHCP; 0 if no interface has DHCP
}

// Interface is a pod's interface (ietf-interfaces:interfaces/interface, type
// iana-if-type:l2vlan, enabled, l2vlan-mode trunk).
type Interface struct {
	Name            string // InterfaceName of namespace, pod and interface uid
	Namespace       string
	Pod             string // the pod's name
	PodUID          string // the pod's uid
	UID             string // the interface's uid
	ParentInterface string // PortName(Name, PodUID): the port on the node's switch
	DHCP            bool   // DHCP offers its addresses that are in their subnets
}

// ELANInterface attaches an Interface to an elan-instance
// (elan:elan-interfaces/elan-interface).
type ELANInterface struct {
	Name      string // the Interface's
	Namespace string
	ELAN      string
	// Chassis is the host name of the pod's node; empty if unknown.
	Chassis string
}

// MACEntry is one static-mac-entries element of an elan-interface.
type MACEntry struct {
	Interface string
	Namespace string
	MAC       string // lower case, colons
	Address   netip.Addr
}

// VPNInterface attaches an Interface to a vpn-instance
// (l3vpn:vpn-interfaces/vpn-interface).
type VPNInterface struct {
	Name      string // the Interface's
	Namespace string
	VPN       string
}

// Adjacency is a primary adjacency of a vpn-interface: an address of the pod, and the
// subnet whose gateway it uses.
type Adjacency struct {
	Interface string
	Namespace string
	Address   netip.Addr
	MAC       string       // lower case, colons
	ELAN      string       // with Network, the key of the Subnet
	Network   netip.Prefix // the Subnet's Prefix; need not contain Address
	Gateway   netip.Addr   // the Subnet's Gateway
}

// Service is a service; its addresses are ServiceVIPs.
type Service struct {
	UID       string
	Namespace string
	Name      string
	// Affinity is the time for which a client keeps its endpoint, in seconds; 0 means no
	// affinity.
	Affinity uint32
	// Places are sets of nodes whose pods have endpoints of their own; see ServiceVIP.Near.
	Places PlaceList
}

// Protocol is a transport protocol in lower case: "tcp", "udp" or "sctp".
type Protocol string

// The transport protocols of services.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// ServiceVIP is one address and port of a service.
type ServiceVIP struct {
	Service   string // the Service's UID
	Namespace string
	Protocol  Protocol
	// VIP is the address and port. Port 0 means every port; then the ports of the
	// endpoints are 0 too.
	VIP       netip.AddrPort
	Endpoints EndpointList // if empty, connections are rejected
	// Near has, for each of the Service's Places, the endpoints of clients there, instead of
	// Endpoints. If only these are empty, connections are dropped.
	Near NearList
}

// FloatingIP maps a pod's address to the address of a service that it serves
// (odl-nat:floating-ip-info/router-ports/ports/internal-to-external-port-map).
type FloatingIP struct {
	Router     string // router-id: the vpn-instance
	Port       string // port-name: the Interface
	Namespace  string
	Internal   netip.Addr // internal-ip: the pod's address
	External   netip.Addr // external-ip: the service's
	ExternalID string     // external-id: the service's uid
}

// Key implements Object.
func (o Transit) Key() Key       { return Key{KindTransit, o.RouteTarget} }
func (o ELANInstance) Key() Key  { return Key{KindELANInstance, o.Name} }
func (o VPNInstance) Key() Key   { return Key{KindVPNInstance, o.Name} }
func (o Subnet) Key() Key        { return subnetKey(o.ELAN, o.Prefix) }
func (o Interface) Key() Key     { return Key{KindInterface, o.Name} }
func (o ELANInterface) Key() Key { return Key{KindELANInterface, o.Name} }
func (o MACEntry) Key() Key      { return Key{KindMACEntry, o.Interface + " " + o.Address.String()} }
func (o VPNInterface) Key() Key  { return Key{KindVPNInterface, o.Name} }
func (o Adjacency) Key() Key     { return Key{KindAdjacency, o.Interface + " " + o.Address.String()} }
func (o Service) Key() Key       { return serviceKey(o.Namespace, o.UID) }
func (o ServiceVIP) Key() Key {
	return Key{KindServiceVIP, fmt.Sprintf("%s %s %s %s", o.Namespace, o.Service, o.Protocol, o.VIP)}
}
func (o FloatingIP) Key() Key {
	return Key{KindFloatingIP, fmt.Sprintf("%s %s %s", o.Router, o.Port, o.Internal)}
}

func subnetKey(elan string, prefix netip.Prefix) Key {
	return Key{KindSubnet, elan + " " + prefix.String()}
}

// serviceKey contains the namespace: a service that moves to another namespace is a new
// object in another scope, and the old object is deleted separately.
func serviceKey(namespace, uid string) Key {
	return Key{KindService, namespace + " " + uid}
}

// Refs implements Object.
func (o Transit) Refs() []Key      { return nil }
func (o ELANInstance) Refs() []Key { return nil }
func (o VPNInstance) Refs() []Key {
	if o.Transit == "" {
		return nil
	}
	return []Key{{KindTransit, o.Transit}}
}
func (o Subnet) Refs() []Key {
	return []Key{{KindELANInstance, o.ELAN}, {KindVPNInstance, o.VPN}}
}
func (o Interface) Refs() []Key { return nil }
func (o ELANInterface) Refs() []Key {
	return []Key{{KindInterface, o.Name}, {KindELANInstance, o.ELAN}}
}
func (o MACEntry) Refs() []Key { return []Key{{KindELANInterface, o.Interface}} }
func (o VPNInterface) Refs() []Key {
	return []Key{{KindInterface, o.Name}, {KindVPNInstance, o.VPN}}
}
func (o Adjacency) Refs() []Key {
	return []Key{{KindVPNInterface, o.Interface}, subnetKey(o.ELAN, o.Network)}
}
func (o Service) Refs() []Key    { return nil }
func (o ServiceVIP) Refs() []Key { return []Key{serviceKey(o.Namespace, o.Service)} }
func (o FloatingIP) Refs() []Key {
	return []Key{{KindVPNInterface, o.Port}, {KindVPNInstance, o.Router}, serviceKey(o.Namespace, o.ExternalID)}
}

// Scope implements Object.
func (o Transit) Scope() Scope { return Cluster }
func (o ELANInstance) Scope() Scope {
	_, namespace, _ := ParseELANName(o.Name)
	return Scope(namespace)
}
func (o VPNInstance) Scope() Scope { return Scope(o.Namespace) }
func (o Subnet) Scope() Scope {
	_, namespace, _ := ParseELANName(o.ELAN)
	return Scope(namespace)
}
func (o Interface) Scope() Scope     { return Scope(o.Namespace) }
func (o ELANInterface) Scope() Scope { return Scope(o.Namespace) }
func (o MACEntry) Scope() Scope      { return Scope(o.Namespace) }
func (o VPNInterface) Scope() Scope  { return Scope(o.Namespace) }
func (o Adjacency) Scope() Scope     { return Scope(o.Namespace) }
func (o Service) Scope() Scope       { return Scope(o.Namespace) }
func (o ServiceVIP) Scope() Scope    { return Scope(o.Namespace) }
func (o FloatingIP) Scope() Scope    { return Scope(o.Namespace) }

func (Transit) sealed()       {}
func (ELANInstance) sealed()  {}
func (VPNInstance) sealed()   {}
func (Subnet) sealed()        {}
func (Interface) sealed()     {}
func (ELANInterface) sealed() {}
func (MACEntry) sealed()      {}
func (VPNInterface) sealed()  {}
func (Adjacency) sealed()     {}
func (Service) sealed()       {}
func (ServiceVIP) sealed()    {}
func (FloatingIP) sealed()    {}
