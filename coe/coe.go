// Package coe holds what container orchestration says: pods, services,
// endpoints and nodes as plain values, what was chosen for them (addresses,
// identifiers), and the Store that keeps who said what.
//
// It knows no protocol: neither Kubernetes nor RESTCONF nor a backend. Values
// that come in here are valid: addresses parsed, uuids and MAC addresses in lower
// case, an empty namespace replaced by "default".
package coe

import (
	"cmp"
	"net/netip"
	"time"
)

// Routable reports whether an address can be that of a service or an endpoint:
// it is not loopback, link-local, multicast or unspecified.
func Routable(a netip.Addr) bool { return a.IsGlobalUnicast() }

// Origin is who said something.
type Origin string

// The origins, in ascending order of precedence: where two say something of one
// uid, the later in this list is believed.
const (
	RESTCONF   Origin = "restconf"
	Kubernetes Origin = "kubernetes"
)

// DefaultNamespace is the namespace of what names none (netvirt-model, "network-NS").
const DefaultNamespace = "default"

// ServicePool is the network-id of the pool that serves cluster addresses to
// services that bring none.
const ServicePool = "services"

// Said is when a source said what an entity is now, and in which revision: the
// API server's resourceVersion, or the datastore's revision.
type Said struct {
	At       time.Time
	Revision string
}

// Pod is a pod (pod:coe/pods).
type Pod struct {
	UID       string
	Name      string // may be empty: then it can't be mapped
	Namespace string
	// NodeName is the name of the pod's node, where the source names it so; HostIP
	// its address, zero while it is not known.
	NodeName string
	HostIP   netip.Addr
	Said     Said
	// MAC is the address that the source wants for the primary interface
	// (port-mac-address), or empty.
	MAC string
	// Interfaces in the order of the source. None means one that says nothing.
	Interfaces []PodInterface
	// NoNetwork is set for pods that have no interface of their own here: on the
	// host's network, succeeded or failed.
	NoNetwork bool
	Ignored   Ignored
}

// PodInterface is one interface of a pod (pod:coe/pods/interface).
type PodInterface struct {
	UID string
	// Addresses are what the source says, at most one of a family; none: choose.
	Addresses      []netip.Addr
	NetworkType    string // "VXLAN", "VLAN", "FLAT", "GRE", or empty for VXLAN
	SegmentationID uint32 // used for VLAN alone
}

// AllInterfaces are the pod's interfaces, the one that is implied where the
// source names none included: its uid is the pod's.
func (p *Pod) AllInterfaces() []PodInterface {
	if len(p.Interfaces) == 0 {
		return []PodInterface{{UID: p.UID}}
	}
	return p.Interfaces
}

// Service is a service (service:service-information/services).
type Service struct {
	UID       string
	Name      string
	Namespace string
	// ClusterIPs are what the source says, at most one of a family; none: take one
	// from the pool "services" where there is one, unless Headless.
	ClusterIPs []netip.Addr
	Headless   bool
	// ExternalIPs are further addresses on which the service answers:
	// external-ip-address, load-balancer-IP and ingress-ip-address.
	ExternalIPs []netip.Addr
	Ports       []ServicePort
	// PodEndpoints are uids of pods that serve it (leaf-list endpoints).
	PodEndpoints []string
	// Affinity is how long, in seconds, a client keeps its endpoint; 0: not.
	Affinity uint32
	Ignored  Ignored
}

// ServicePort is one port of a service.
type ServicePort struct {
	Name     string
	Protocol string // "tcp", "udp", "sctp"
	Port     uint16
	// TargetPort is a number, the name of an endpoint port, or empty for Port.
	TargetPort string
	NodePort   uint16
}

// Endpoints says who serves a service (service:endpoints-info/endpoints). It
// belongs to the service of the same namespace and name.
type Endpoints struct {
	UID       string
	Name      string // the service's name
	Namespace string
	Addresses []netip.Addr
	// Terminating are endpoints that are going away and still serve. They are used
	// while the service has no other.
	Terminating []netip.Addr
	Ports       []EndpointPort
	// PortsByName says that Ports are all that the addresses serve, by the names and
	// protocols of the service's ports, as in an EndpointSlice: for a port of the
	// service that is not among them they are no endpoints. Otherwise the service's
	// target port tells what Ports leaves open.
	PortsByName bool
}

// EndpointPort is a port of every address of an Endpoints.
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
	ExternalIP netip.Addr
	PodCIDRs   []netip.Prefix // at most one of a family
}

// PodCIDR is the node's pod-cidr of the address's family; zero where it has none.
func (n *Node) PodCIDR(a netip.Addr) netip.Prefix {
	for _, cidr := range n.PodCIDRs {
		if cidr.Addr().Is4() == a.Is4() {
			return cidr
		}
	}
	return netip.Prefix{}
}

// Identity is what names the node whatever object describes it: its host name, or its
// uid where it has none. A node that is created again under its name is the same node.
func (n *Node) Identity() string { return cmp.Or(n.HostName, n.UID) }

// Namespace is a namespace that a source knows of.
type Namespace struct {
	UID         string
	Name        string
	Terminating bool // nothing new can be made in it
	Ignored     Ignored
}

// PolicyKind is the kind of a Policy.
type PolicyKind string

// The kinds of policies, as problems name them.
const (
	NetworkPolicy PolicyKind = "networkpolicy" // networking.k8s.io, or k8s:k8s over RESTCONF
	AccessList    PolicyKind = "access-list"   // ietf-access-control-list:access-lists
)

// Policy is a rule about traffic that a source asks for. Nothing enforces policies
// yet, so a Policy is only a name that a Problem can report.
type Policy struct {
	UID       string
	Namespace string // empty for a policy of the cluster
	Name      string
	Kind      PolicyKind
}

// Address is the node's address as pods name it: the internal one, else the
// external one.
func (n *Node) Address() netip.Addr {
	if n.InternalIP.IsValid() {
		return n.InternalIP
	}
	return n.ExternalIP
}
