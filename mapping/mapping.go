// Package mapping computes the wanted network: it maps the entities of one scope to
// Netvirt objects, as in the table "Model Mapping" of the Netvirt COE Integration. It is pure:
// the result depends only on the given view and settings, not on history. It has no clock,
// no log and no errors. An entity that cannot be mapped becomes a Problem; it is mapped
// when the missing information arrives.
package mapping

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/service"
)

// Isolation is the policy for traffic between pods of different namespaces.
type Isolation string

const (
	// IsolationNone lets every pod reach every pod (Netvirt COE Integration, "Use Case 1").
	IsolationNone Isolation = "none"
	// IsolationNamespace keeps namespaces apart: each has its own network.
	IsolationNamespace Isolation = "namespace"
	// IsolationACLs keeps namespaces apart by ACLs in a network of all namespaces.
	IsolationACLs Isolation = "acls"
)

// Settings are the operator's settings for the mapping.
type Settings struct {
	Isolation Isolation
	// Limits are the limits of the backend.
	Limits netvirt.Limits
	// DHCPLeaseTime is the lease time that DHCP offers to pods, in seconds; 0 means 3600.
	DHCPLeaseTime uint32
	// NodePorts are the ports on which nodes answer for services; the zero value has none.
	NodePorts coe.PortRange
	// HostPorts are the ports on which nodes answer for pods; sorted.
	HostPorts []coe.PortRange
	// ManagementPorts is set if nodes have management ports. NodeAddresses is set if nodes have addresses of the same network in
	// isolated namespaces instead.
	ManagementPorts, NodeAddresses bool
	// NodesIPv6 is set if nodes with an internal IPv4 address have an IPv6 address in the network of the pods.
	NodesIPv6 bool
	// Physical are the physical networks of namespaces.
	Physical physical.Networks
	// External are the ranges of external addresses of services. Pods reach those that the backend does not
	// balance by their own nodes.
	External netvirt.PrefixList
}

// LeaseTime returns the lease time that DHCP offers to pods, in seconds.
func (s Settings) LeaseTime() uint32 { return cmp.Or(s.DHCPLeaseTime, defaultLease) }

// ServiceSettings returns the settings for the mapping of services.
func (s Settings) ServiceSettings() service.Settings {
	return service.Settings{
		Limits: s.Limits, Isolated: s.Isolated(), ManagementPorts: s.ManagementPorts,
		NodesLead:    s.ManagementPorts && !s.Separates(), // ACLs that keep namespaces apart drop packets of others
		NodesBalance: s.nodesBalance(), GatewaysLead: s.servesGateways(),
		NodesIPv6: s.NodesIPv6, NodePorts: s.NodePorts, External: s.External,
	}
}

// nodesBalance reports whether nodes lead pods to services.
func (s Settings) nodesBalance() bool {
	return (s.ManagementPorts || s.NodeAddresses) && s.Limits.NodesBalance
}

// servesNodePorts reports whether nodes answer on node ports of services.
func (s Settings) servesNodePorts() bool { return s.NodePorts != coe.PortRange{} }

// servesHostPort reports whether nodes answer on a port for pods that request it.
func (s Settings) servesHostPort(port uint16) bool {
	return slices.ContainsFunc(s.HostPorts, func(r coe.PortRange) bool { return r.Contains(port) })
}

// withholds reports whether nodes answer on ports that lead elsewhere.
func (s Settings) withholds() bool { return s.servesNodePorts() || len(s.HostPorts) > 0 }

// Isolated reports whether each namespace has its own address space.
func (s Settings) Isolated() bool { return s.Isolation == IsolationNamespace }

// transit returns the route target that vpn-instances share, or empty.
func (s Settings) transit() string {
	if s.Isolated() {
		return ""
	}
	return netvirt.CommonRouteTarget
}

// Map maps one namespace. The problems are sorted, without duplicates.
func Map(v coe.View, s Settings) (netvirt.Model, []coe.Problem) {
	b := newBuilder(v, s, newMapped(), s.compile(v.PolicySet))
	b.build()
	return b.parts.Model(), b.problems
}

// compile returns the policies of a PolicySet; nil if there is none, or the backend has no ACLs.
func (s Settings) compile(set *coe.PolicySet) *policies {
	if set == nil || s.Limits.NoACLs {
		return nil
	}
	return compile(set, s.Isolated() || s.Separates(), s.Separates())
}

func newBuilder(v coe.View, s Settings, before *mapped, all *policies) *builder {
	b := &builder{
		View:     v,
		Settings: s,
		mapped:   before,
		changed:  map[string]*netvirt.Part{},
		rest:     make(netvirt.Model, 4*len(v.Services)+1),
	}
	if all != nil {
		b.policies, b.members = all.namespace(v.Namespace), map[memberKey]member{}
	}
	return b
}

func (b *builder) build() {
	if b.unknownPolicies() {
		b.forgetAll()
		b.waitForPolicies()
	} else {
		b.follow()
	}
	if len(b.elans) > 0 {
		b.rest.Add(b.vpnInstance())
	}
	b.acls()
	namespace := service.Namespace{View: b.View, Interfaces: b.pods, EgressOf: b.egressOf}
	b.problems = append(b.problems, service.Map(namespace, b.ServiceSettings(), b.rest)...)
	b.notEnforced()
	b.limitedPolicies()
	b.profiles()
	b.sharedEgress()
	b.changed[""] = netvirt.RestPart(b.rest)
	b.parts = b.parts.With(b.changed)
	b.view = coe.View{Pods: b.Pods, Leases: b.Leases, Blocks: b.Blocks, ELANs: b.ELANs, VPN: b.VPN, Refusals: b.Refusals}
	b.enforced = b.policies
	for _, problems := range b.podProblems {
		b.problems = append(b.problems, problems...)
	}
	slices.SortFunc(b.problems, func(a, c coe.Problem) int {
		return cmp.Or(cmp.Compare(a.Kind, c.Kind), cmp.Compare(a.UID, c.UID),
			cmp.Compare(a.Reason, c.Reason), cmp.Compare(a.Message, c.Message))
	})
	b.problems = slices.Compact(b.problems) // a service repeats a problem for each address
}

// builder collects the model of one namespace.
type builder struct {
	coe.View
	Settings
	*mapped
	// changed has the parts of new and changed interfaces and elan-instances, and nil for those that are gone.
	changed map[string]*netvirt.Part
	// touched are the elans that have to be settled.
	touched  []*elan
	rest     netvirt.Model // the objects of the part ""
	problems []coe.Problem
	// policies is nil if the backend does not enforce ACLs.
	policies *namespacePolicies
	members  map[memberKey]member // the known results of policies.member
	// families are the address families of the interfaces that may be members of ACLs.
	families familySet
	// selected has the EgressIPs of the pods that they select, by UID; nil until a service needs it.
	selected map[string]*coe.EgressIP
}

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

// Store has the values of all scopes. coe/state.Store is one.
type Store interface {
	View(namespace string) coe.View
	Cluster() coe.ClusterView
}

// Scope maps one scope of a store: a namespace or the cluster. A Mapper does the same, but
// faster if it is called again after few changes.
func Scope(store Store, scope netvirt.Scope, s Settings) (netvirt.Model, []coe.Problem) {
	if scope == netvirt.Cluster {
		return Cluster(store.Cluster(), s)
	}
	return Map(store.View(string(scope)), s)
}
