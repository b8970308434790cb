// Package coe has the entities of the container orchestration engine as plain values: pods, services,
// endpoints, nodes and policies, and the values that were chosen for them (addresses, identifiers). A View
// has all that the mapping of a namespace may use, a ClusterView all that belongs to no namespace.
//
// It knows no protocol: neither Kubernetes nor RESTCONF nor a backend. It keeps nothing: the Store of
// package state does. All values in it are valid: addresses are parsed, UUIDs and MAC addresses are in
// lower case, and an empty namespace is replaced by "default".
package coe

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Routable reports whether an address can be the address of a service or an endpoint: it is
// not loopback, link-local, multicast or unspecified.
func Routable(a netip.Addr) bool { return a.IsGlobalUnicast() }

// Origin is the source of a reported entity.
type Origin string

// The origins in ascending precedence: if two origins report the same UID, the later one in
// this list applies.
const (
	RESTCONF   Origin = "restconf"
	Kubernetes Origin = "kubernetes"
)

// DefaultNamespace is the namespace of entities without one (docs/mapping.md).
const DefaultNamespace = "default"

// ServicePool is the network-id of the pool with cluster addresses for services that request
// none.
const ServicePool = "services"

// Reported is when a source reported the current state of an entity, and its revision: the
// resourceVersion of the API server, or the revision of the datastore.
type Reported struct {
	At       time.Time
	Revision string
}

// Pod is a pod (pod:coe/pods).
type Pod struct {
	UID       string
	Name      string // may be empty; then the pod cannot be mapped
	Namespace string
	// NodeName is the name of the pod's node if the source gives it. HostIP is the node's
	// address; zero while it is unknown.
	NodeName string
	HostIP   netip.Addr
	Reported Reported
	// MAC is the address that the source requests for the primary interface
	// (port-mac-address), or empty.
	MAC string
	// Interfaces are in the order of the source. If there are none, the pod has one interface
	// without requests.
	Interfaces []PodInterface
	// NoNetwork is set for pods without their own interface: pods on the host network, and
	// pods that succeeded or failed.
	NoNetwork bool
	Labels    Labels
	Ports     ContainerPorts
	Ignored   Ignored
	// HostPorts are the ports of the node that the pod requests, at most MaxHostPorts, sorted.
	HostPorts []uint16
	// DHCP: the pod asks to get its addresses by DHCP too.
	DHCP bool
}

// PodInterface is one interface of a pod (pod:coe/pods/interface).
type PodInterface struct {
	UID string
	// Addresses are the requested addresses, at most one per family; none: choose.
	Addresses      []netip.Addr
	NetworkType    string // "VXLAN", "VLAN", "FLAT", "GRE", or empty for VXLAN
	SegmentationID uint32 // used for VLAN only
}

// VXLAN is the type of the network of an interface that requests none.
const VXLAN = "VXLAN"

// Type returns the type of the network that the interface requests.
func (i PodInterface) Type() string { return cmp.Or(i.NetworkType, VXLAN) }

// AllInterfaces returns the pod's interfaces. If the source names none, it returns the
// implied interface, whose UID is the pod's.
func (p *Pod) AllInterfaces() []PodInterface {
	if len(p.Interfaces) == 0 {
		return []PodInterface{{UID: p.UID}}
	}
	return p.Interfaces
}

// Compare compares two pods by UID, like the order of a View.
func (p *Pod) Compare(other *Pod) int { return strings.Compare(p.UID, other.UID) }

// Service is a service (service:service-information/services).
type Service struct {
	UID       string
	Name      string
	Namespace string
	// ClusterIPs are the requested addresses, at most one per family. If there are none, the
	// service gets one from the pool "services" if the pool exists, unless it is Headless.
	ClusterIPs []netip.Addr
	Headless   bool
	// ExternalIPs are further addresses of the service: external-ip-address,
	// load-balancer-IP and ingress-ip-address.
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are the ExternalIPs that a load balancer has. If Restricted is set, only clients
	// in SourceRanges reach them.
	LoadBalancerIPs []netip.Addr
	Restricted      bool
	SourceRanges    []netip.Prefix
	Ports           []ServicePort
	// PodEndpoints are the UIDs of pods that serve it (leaf-list endpoints).
	PodEndpoints []string
	// Affinity is how long a client keeps its endpoint, in seconds; 0: no affinity.
	Affinity uint32
	// Local: clients of a node port reach only the endpoints on the node that they ask.
	Local bool
	// HealthPort is the port on every node that tells load balancers whether the node has endpoints, if Local
	// is set; 0 for none.
	HealthPort uint16
	// InternalLocal: clients of the cluster addresses reach only the endpoints on their own node.
	InternalLocal bool
	// Distributes: the source requests that endpoints have hints (see Place), for example by
	// trafficDistribution. Hints count without the request too.
	Distributes bool
	Ignored     Ignored
}

// ServicePort is one port of a service.
type ServicePort struct {
	Name     string
	Protocol string // "tcp", "udp", "sctp"
	Port     uint16
	// TargetPort is a number, the name of an endpoint port, or empty for Port.
	TargetPort string
	NodePort   uint16 // the port on every node; 0 for none
}

// ServiceCIDR has ranges from which an API server gives cluster addresses to services (networking.k8s.io/v1).
type ServiceCIDR struct {
	UID, Name string
	CIDRs     []netip.Prefix // masked
}

// Endpoints are the endpoints of a service (service:endpoints-info/endpoints). They belong to
// the service with the same namespace and name.
type Endpoints struct {
	UID       string
	Name      string // the service's name
	Namespace string
	Addresses []netip.Addr
	// Terminating are endpoints that are terminating but still serve. They are used while the
	// service has no other endpoint.
	Terminating []netip.Addr
	// Places are the places of Addresses and then of Terminating, in their order; nil if the source
	// knows none.
	Places []Place
	Ports  []EndpointPort
	// PortsByName means that Ports are all ports of the addresses, matched with the
	// service's ports by name and protocol, as in an EndpointSlice. The addresses do not
	// serve other ports of the service. Otherwise the service's target port applies where
	// Ports has no match.
	PortsByName bool
}

// Place is where an endpoint is, and which clients it is meant for.
type Place struct {
	Node  string // the name of its node; empty if it is not known
	Hints *Hints // nil if there are none
}

// Hints are the names of the nodes and of the zones whose clients an endpoint is meant for (hints of
// an EndpointSlice). One of the two may be empty.
type Hints struct{ Nodes, Zones []string }

// Place returns one of Places; nil if the source knows none.
func (e *Endpoints) Place(i int) *Place {
	if e.Places == nil {
		return nil
	}
	return &e.Places[i]
}

// Hinted reports whether one of the endpoints has hints.
func (e *Endpoints) Hinted() bool {
	return slices.ContainsFunc(e.Places, func(p Place) bool { return p.Hints != nil })
}

// EndpointPort is a port of all addresses of an Endpoints.
type EndpointPort struct {
	Name     string
	Protocol string // "tcp", "udp", "sctp"
	Port     uint16
}

// Node is a node of the cluster (k8s-node:k8s-nodes-info/k8s-nodes).
type Node struct {
	UID        string
	HostName   string
	InternalIP netip.Addr
	// SecondIP is the internal address of the other family; zero if there is none.
	SecondIP   netip.Addr
	ExternalIP netip.Addr
	PodCIDRs   []netip.Prefix // at most one per family
	Zone       string         // empty if it is not known
	// Egress is set if the node may hold egress addresses. Cordoned: it is to get nothing new.
	Egress, Cordoned bool
}

// PodCIDR returns the node's pod CIDR in the family of an address; zero if it has none.
func (n *Node) PodCIDR(a netip.Addr) netip.Prefix {
	for _, cidr := range n.PodCIDRs {
		if cidr.Addr().Is4() == a.Is4() {
			return cidr
		}
	}
	return netip.Prefix{}
}

// FurtherIPs returns the addresses of the node besides the first internal one.
func (n *Node) FurtherIPs() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{n.SecondIP, n.ExternalIP}, func(a netip.Addr) bool { return !a.IsValid() })
}

// Identity identifies the node independently of its object: its host name, or its UID if it
// has none. A node that is created again with the same name is the same node.
func (n *Node) Identity() string { return cmp.Or(n.HostName, n.UID) }

// Chassis is what the agent of a node has reported: the name of the node in OVN.
type Chassis struct {
	Node netip.Addr // internal address; the key
	Name string     // what ovn-controller has: external_ids:system-id of the switch, unless it was given another one
}

// Namespace is a namespace that a source reports.
type Namespace struct {
	UID         string
	Name        string
	Terminating bool // nothing new can be made in it
	Labels      Labels
	PolicyLog   PolicyLog
	Ignored     Ignored
}

// PolicyLog is which connections of a namespace's pods are logged (PolicyLogAnnotation).
type PolicyLog string

// The values of a PolicyLog. Without one nothing is logged.
const (
	LogDropped PolicyLog = "drop" // those that policies drop
	LogAll     PolicyLog = "all"  // and those that rules of policies allow
)

// PolicyLogAnnotation is the annotation of a namespace with its PolicyLog.
const PolicyLogAnnotation = AnnotationPrefix + "policy-log"

// PolicyKind is the kind of a Policy.
type PolicyKind string

// The kinds of policies, as in Problem.Kind.
const (
	NetworkPolicy PolicyKind = "networkpolicy" // networking.k8s.io, or k8s:k8s over RESTCONF
	AccessList    PolicyKind = "access-list"   // ietf-access-control-list:access-lists
)

// Policy is the name of a policy that a source requests. PolicySpec has its rules.
type Policy struct {
	UID       string
	Namespace string // empty for a policy of the cluster
	Name      string
	Kind      PolicyKind
	// Invalid names the fields that are wrong; empty for a valid policy. The PolicySpec of an
	// invalid policy isolates the pods that it selects in both directions, without rules. If it
	// is unknown which pods it selects, it selects all pods of its namespace.
	Invalid string
}

// Address returns the node's address in the objects of its pods: the internal address, or the
// external address if there is none.
func (n *Node) Address() netip.Addr {
	if n.InternalIP.IsValid() {
		return n.InternalIP
	}
	return n.ExternalIP
}
