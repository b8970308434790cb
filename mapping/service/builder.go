// Package service maps the services of a namespace: to the load balancers of the model, to the ports at which nodes and gateways
// answer for them, and to where clients reach them. It is pure. It does not know how pods, nodes and policies are mapped.
package service

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Settings say who leads clients to services.
type Settings struct {
	// Limits are the limits of the backend.
	Limits netvirt.Limits
	// Isolated is set if each namespace has its own address space.
	Isolated bool
	// ManagementPorts is set if nodes have management ports.
	ManagementPorts bool
	// NodesLead is set if nodes lead packets of others to external addresses. NodesBalance is set if nodes lead pods to services,
	// because the backend does not. GatewaysLead is set if the model has gateways.
	NodesLead, NodesBalance, GatewaysLead bool
	// NodesIPv6 is set if nodes with an internal IPv4 address have an IPv6 address in the network of the pods.
	NodesIPv6 bool
	// NodePorts are the ports on which nodes answer for services; the zero value has none.
	NodePorts coe.PortRange
	// External are the ranges of external addresses of services that gateways let in.
	External netvirt.PrefixList
}

// servesNodePorts reports whether nodes answer on node ports of services.
func (s Settings) servesNodePorts() bool { return s.NodePorts != coe.PortRange{} }

// Namespace is what the services of a namespace are mapped from.
type Namespace struct {
	coe.View
	// Interfaces has the interfaces in the model by address.
	Interfaces map[netip.Addr]*coe.Lease
	// EgressOf returns the EgressIP with whose address the pod with an address leaves; nil if there is none.
	EgressOf func(netip.Addr) *coe.EgressIP
}

// Map adds the objects of the services of a namespace to the model, and returns the problems of the services, in no order. A
// problem can occur several times.
func Map(n Namespace, s Settings, m netvirt.Model) []coe.Problem {
	b := newBuilder(n.View, s)
	b.pods, b.egressOf, b.model = n.Interfaces, n.EgressOf, m
	b.services()
	b.gatewayVIPs(b.exposures())
	b.notEnforced()
	return b.problems
}

// builder collects the objects of the services of one namespace.
type builder struct {
	coe.View
	Settings
	pods     map[netip.Addr]*coe.Lease // the interfaces by address
	egressOf func(netip.Addr) *coe.EgressIP
	model    netvirt.Model
	problems []coe.Problem
	// backends counts the endpoints of the services; see coe.MaxNamespaceBackends.
	backends int
	// placeEntries counts the endpoints and nodes at the places of the services; see coe.MaxPlaceBackends.
	placeEntries int
	// accepted has the targets of the services in the model; atGateways counts their endpoints at gateways.
	accepted   map[*coe.Service][]target
	atGateways int
	// clientNodes is the result of clients; nil until a service needs it.
	clientNodes []netip.Addr
	// furtherIPs has the addresses of nodes besides the first internal ones; nil until a service needs them.
	furtherIPs map[netip.Addr]bool
	// secondIPs has the nodes by their second internal address; nil until a service needs them.
	secondIPs map[netip.Addr][]netip.Addr
}

func newBuilder(v coe.View, s Settings) *builder {
	return &builder{View: v, Settings: s, accepted: map[*coe.Service][]target{}}
}

// alone returns a builder for what does not depend on the mapping of pods: all interfaces count as mapped.
func alone(v coe.View, s Settings) *builder {
	b := newBuilder(v, s)
	b.pods = addressesOf(v.Leases)
	return b
}

// services maps the namespace's services: each address and port, and the floating-ip-info
// of the pods that serve it (Netvirt COE Integration, "Create Service").
func (b *builder) services() {
	endpoints, taken := b.endpointsByName(), map[vip]*coe.Service{}
	for _, s := range b.Services {
		b.service(s, endpoints[s.Name], taken)
	}
}

// endpointsByName returns the endpoints of the namespace by the name of their service.
func (b *builder) endpointsByName() map[string][]*coe.Endpoints {
	all := map[string][]*coe.Endpoints{}
	for _, e := range b.Endpoints {
		all[e.Name] = append(all[e.Name], e)
	}
	return all
}

// notEnforced adds the problems of services with settings that have no effect.
func (b *builder) notEnforced() {
	for _, s := range b.Services {
		if ignored := s.Ignored | b.unserved(s) | b.withoutPlaces(s); ignored != 0 {
			b.unenforced(s, ignored.String())
		}
		if most := b.Limits.Affinity; most != 0 && s.Affinity > most {
			b.unenforced(s, fmt.Sprintf("a session affinity of %d s is shortened to %d s, the maximum of the backend", s.Affinity, most))
		}
	}
}
