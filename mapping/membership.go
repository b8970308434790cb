package mapping

import (
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// membership is what an InterfaceACL says. It is shared by interfaces and never changed.
type membership struct{ acls, groups netvirt.NameList }

// memberKey is what decides on the membership of most pods.
type memberKey struct {
	labels coe.Labels
	ports  coe.ContainerPorts
	node   netip.Addr // zero if no source reports it
}

// member is the membership of the pods with a memberKey. An interface is also a member of the
// groups of within whose prefixes have one of its addresses.
type member struct {
	*membership
	within []*membersGroup
}

// unknownPolicies reports whether a pod may be subject to a policy that is not known yet.
func (b *builder) unknownPolicies() bool { return b.policies != nil && !b.PolicySet.Complete }

// waitForPolicies adds a problem for each pod that has a network. The loop removes nothing
// meanwhile, so the interfaces of the last mapping stay.
func (b *builder) waitForPolicies() {
	for _, p := range b.Pods {
		if !p.NoNetwork {
			b.podProblem(p, coe.Waiting, "the network policies are not all known yet")
			b.problems = append(b.problems, b.notEnforcedOfPod(p, nil)...)
		}
	}
}

// limitedPolicies adds a problem for each policy that exceeds a limit for the namespace.
func (b *builder) limitedPolicies() {
	if b.policies == nil || len(b.PolicySet.Excess) == 0 {
		return
	}
	for _, p := range b.Policies {
		if excess := b.PolicySet.Excess[p.UID]; excess != "" {
			b.problems = append(b.problems, coe.Problem{
				Namespace: p.Namespace, Kind: string(p.Kind), UID: p.UID, Name: p.Name, Reason: coe.TooLarge, Message: excess,
			})
		}
	}
}

// membership returns the membership of an interface of a pod; nil if it has none.
func (b *builder) membership(p *coe.Pod, l *coe.Lease) *membership {
	if b.policies == nil || b.policies.empty() {
		return nil
	}
	key := memberKey{labels: p.Labels, ports: p.Ports}
	if b.Nodes[l.Node] != nil {
		key.node = l.Node
	}
	m, known := b.members[key]
	if !known {
		m = b.policies.member(b.Namespace, key)
		b.members[key] = m
	}
	if len(m.within) == 0 {
		return m.membership
	}
	groups := m.groups.All()
	for _, g := range m.within {
		if slices.ContainsFunc(l.Addresses, func(a coe.LeasedAddress) bool { return g.prefixes.Contains(a.Address) }) {
			groups = append(groups, g.name)
		}
	}
	return &membership{m.acls, netvirt.NewNameList(groups...)}
}

// empty reports whether the policies mean nothing for the pods of the namespace.
func (n *namespacePolicies) empty() bool {
	return len(n.subjects)+len(n.profiles)+len(n.groups) == 0 && n.own == nil
}

// of returns the subjects that pods with some labels are among.
func (n *namespacePolicies) of(labels coe.Labels) (all []*subjects) {
	for _, s := range n.subjects {
		if s.selector.Matches(labels) {
			all = append(all, s)
		}
	}
	for name := range labels.Profiles() {
		if s := n.profiles[name]; s != nil {
			all = append(all, s)
		}
	}
	return all
}

// member returns the membership of the pods of a namespace with a memberKey.
func (n *namespacePolicies) member(namespace string, key memberKey) member {
	labels := coe.PodLabels(n.labels, key.labels)
	m := member{membership: &membership{acls: n.aclsOf(namespace, key, labels)}}
	var groups []string
	for _, g := range n.groups {
		switch {
		case !hasPort(key.ports, g.port):
		case slices.ContainsFunc(g.selectors, func(s *coe.Selector) bool { return s.Matches(labels) }):
			groups = append(groups, g.name)
		case g.byAddress():
			m.within = append(m.within, g)
		}
	}
	m.groups = netvirt.NewNameList(groups...)
	return m
}

// aclsOf returns the names of the ACLs of which pods with a memberKey are members.
func (n *namespacePolicies) aclsOf(namespace string, key memberKey, labels coe.Labels) netvirt.NameList {
	var acls []string
	isolated := map[netvirt.Direction]bool{}
	for _, s := range n.of(labels) {
		isolated[netvirt.Ingress] = isolated[netvirt.Ingress] || s.ingress
		isolated[netvirt.Egress] = isolated[netvirt.Egress] || s.egress
		for _, a := range s.acls {
			if hasPort(key.ports, a.port) {
				acls = append(acls, a.name)
			}
		}
	}
	for _, d := range directions {
		if n.own != nil && !isolated[d.acl] {
			isolated[d.acl] = true
			acls = append(acls, withinACLName(namespace, d.acl))
		}
	}
	for d, is := range isolated {
		if is {
			acls = append(acls, netvirt.IsolatingACLName(namespace, d))
		}
	}
	if (isolated[netvirt.Ingress] || isolated[netvirt.Egress]) && key.node.IsValid() {
		acls = append(acls, netvirt.NodeACLName(key.node))
	}
	return netvirt.NewNameList(acls...)
}

// hasPort reports whether a port is one of a pod's; nil is.
func hasPort(ports coe.ContainerPorts, port *coe.ContainerPort) bool {
	if port == nil {
		return true
	}
	for p := range ports.All() {
		if p == *port {
			return true
		}
	}
	return false
}

// sameMembership reports whether an interface that was mapped before has the same membership.
func (b *builder) sameMembership(a *attached) bool {
	if b.policies == b.enforced {
		return true
	}
	now := b.membership(a.pod, a.lease)
	if now == nil || a.membership == nil {
		return now == a.membership
	}
	return *now == *a.membership
}

// interfaceACL returns the InterfaceACL of an interface. It returns false if it needs none.
func interfaceACL(a *attached) (netvirt.InterfaceACL, bool) {
	if a.membership == nil || a.membership.acls == "" && a.membership.groups == "" {
		return netvirt.InterfaceACL{}, false
	}
	return netvirt.InterfaceACL{
		Interface: a.lease.Name, Namespace: a.lease.Namespace,
		SecurityGroups: a.membership.acls, RemoteGroups: a.membership.groups,
	}, true
}

// acls adds the namespace's ACLs with their ACEs. There are none while no interface can be a
// member.
func (b *builder) acls() {
	if b.policies == nil {
		return
	}
	for _, e := range b.elans {
		b.families |= e.families
	}
	if b.families == 0 {
		return
	}
	log := b.policyLog()
	isolated := map[netvirt.Direction]bool{}
	for _, s := range b.policies.allSubjects() {
		isolated[netvirt.Ingress] = isolated[netvirt.Ingress] || s.ingress
		isolated[netvirt.Egress] = isolated[netvirt.Egress] || s.egress
		for _, a := range s.acls {
			b.rest.Add(netvirt.ACL{Name: a.name, Namespace: b.Namespace, Logs: log == coe.LogAll})
			for _, e := range a.entries {
				b.aces(a.name, e)
			}
		}
	}
	b.within(isolated, log)
	for d, is := range isolated {
		if is {
			b.rest.Add(netvirt.ACL{
				Name: netvirt.IsolatingACLName(b.Namespace, d), Namespace: b.Namespace, Isolates: d, Withholds: b.withheld(d), Logs: log != "",
			})
		}
	}
}

// withheld returns the ports that isolated pods do not reach at their own node, although they reach
// everything else there: a node port leads to other pods and out of the cluster, a host port to another pod.
func (b *builder) withheld(d netvirt.Direction) netvirt.PortList {
	if d != netvirt.Egress || !b.withholds() {
		return ""
	}
	ranges := b.HostPorts
	if b.servesNodePorts() {
		ranges = append(slices.Clone(ranges), b.NodePorts)
	}
	var all []netvirt.PortRange
	for _, p := range []netvirt.Protocol{netvirt.TCP, netvirt.UDP, netvirt.SCTP} {
		for _, r := range ranges {
			all = append(all, netvirt.PortRange{Protocol: p, First: r.First, Last: r.Last})
		}
	}
	return netvirt.NewPortList(all...)
}

// policyLog returns the PolicyLog of the namespace; empty if the backend does not log.
func (b *builder) policyLog() coe.PolicyLog {
	if b.Configured == nil || b.Limits.NoLogs {
		return ""
	}
	return b.Configured.PolicyLog
}

// aces adds an ACE for each family that an entry and the namespace have.
func (b *builder) aces(acl string, e entry) {
	for _, f := range (e.families & b.families).all() {
		b.rest.Add(netvirt.ACE{
			ACL: acl, Namespace: b.Namespace, Name: e.aceName(f), Direction: e.direction, Family: f, Remote: e.remote, Ports: e.ports,
		})
	}
}
