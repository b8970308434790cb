// Package policy judges traffic by network policies: it says whether a pod or an address may
// connect to another, and by which rule of which policy. It is pure. It judges a World that its
// caller describes, and knows neither where the World comes from nor how policies are enforced.
//
// Beside what policies allow, these connections are always allowed, as Kubernetes documents:
// a pod to itself, and a pod from and to its own node. A pod on the host network counts as its
// node: no policy selects it, and of peers only a block of addresses can match it. A pod that has
// finished has no address.
package policy

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
)

// World is what questions are about. The order of its parts does not matter. Namespaces, nodes and
// pods have different names.
type World struct {
	Namespaces []Namespace
	Nodes      []Node
	Pods       []Pod
	// Policies are network policies and access lists. A pod that names a security profile that is
	// not among them has no connections. A policy that exceeds a limit for its namespace
	// (coe.MaxNamespaceRules) allows nothing.
	Policies []*coe.PolicySpec
}

// Namespace is a namespace with its labels. A namespace that is not in the World has no labels.
type Namespace struct {
	Name   string
	Labels coe.Labels
}

// Node is a node with all its addresses.
type Node struct {
	Name      string
	Addresses []netip.Addr
}

// Pod is a pod.
type Pod struct {
	Namespace, Name string
	Node            string // name; empty if the pod has no node yet
	Labels          coe.Labels
	Ports           []coe.ContainerPort
	// Addresses are the pod's addresses, at most one per family. If there are none, no block of
	// addresses matches the pod. A pod on the host network has the addresses of its node, and
	// those given here.
	Addresses   []netip.Addr
	HostNetwork bool
	Finished    bool // none of its containers will run again
}

// Port is the port that a connection goes to.
type Port struct {
	Protocol string // "tcp", "udp", "sctp"
	Number   uint16
}
