package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// policies is a PolicySet as ACLs and RemoteGroups. It is computed once for each PolicySet, and
// is the same for all namespaces (docs/decisions/0042-policies-are-acls-of-the-model.md).
type policies struct {
	set *coe.PolicySet
	// isolated is set if namespaces are isolated; separates, if ACLs do that.
	isolated, separates bool
	// groups are the RemoteGroups of all rules, by name.
	groups map[string]*group
	// subjects are the pods that policies select, by namespace and then by canonical selector.
	subjects map[string]map[string]*subjects
	// namespaces has the result of namespace.
	namespaces map[string]*namespacePolicies
}

// subjects are the pods of a namespace that a selector of its policies selects.
type subjects struct {
	key             string // the canonical selector
	selector        *coe.Selector
	ingress, egress bool            // the directions in which they are isolated
	acls            map[string]*acl // by name
}

// acl is an ACL with the rules for its members.
type acl struct {
	name    string
	port    *coe.ContainerPort // if not nil, only pods that have it are members
	entries []entry
}

// entry is a rule: an ACE for each of its families.
type entry struct {
	direction netvirt.Direction
	policy    string // its name in names of ACEs
	rule      int
	suffix    string // of the name of the ACE; empty if it is about numeric ports
	remote    string
	families  familySet
	ports     netvirt.PortList
}

// group is a RemoteGroup and who its members are. If port is nil, it has the addresses of prefixes
// and the pods of peers. Else it has the pods of peers, and the pods with one of the prefixes'
// addresses, as far as they have the port.
type group struct {
	name      string
	namespace string // if not empty, only its pods are members
	podsOnly  bool   // no address of prefixes is a member unless a pod has it
	prefixes  *netipx.IPSet
	peers     []podPeer
	port      *coe.ContainerPort
}

// podPeer is a peer of a rule that is pods.
type podPeer struct {
	own        string // the namespace of the pods, if namespaces is nil
	namespaces *coe.Selector
	pods       *coe.Selector
}

// familySet is a set of address families.
type familySet uint8

const (
	hasIPv4 familySet = 1 << iota
	hasIPv6
)

// familiesOf returns the families of a rule.
func familiesOf(f coe.Family) familySet {
	switch f {
	case coe.IPv4:
		return hasIPv4
	case coe.IPv6:
		return hasIPv6
	}
	return hasIPv4 | hasIPv6
}

// familyOf returns the family of an address.
func familyOf(a netip.Addr) familySet {
	if a.Is4() {
		return hasIPv4
	}
	return hasIPv6
}

// all returns the families of the set.
func (f familySet) all() []netvirt.Family {
	var all []netvirt.Family
	if f&hasIPv4 != 0 {
		all = append(all, netvirt.IPv4)
	}
	if f&hasIPv6 != 0 {
		all = append(all, netvirt.IPv6)
	}
	return all
}

// directions are the directions of policies, and the same directions of ACLs.
var directions = []struct {
	coe coe.Direction
	acl netvirt.Direction
}{{coe.Ingress, netvirt.Ingress}, {coe.Egress, netvirt.Egress}}

// compile computes the ACLs and RemoteGroups of a PolicySet.
func compile(set *coe.PolicySet, isolated, separates bool) *policies {
	c := &policies{
		set: set, isolated: isolated, separates: separates,
		groups: map[string]*group{}, subjects: map[string]map[string]*subjects{}, namespaces: map[string]*namespacePolicies{},
	}
	labels := policyNames(set.Policies)
	for _, p := range set.Policies {
		if p.Namespace != "" {
			c.add(p, p.Namespace, labels[p])
			continue
		}
		for _, namespace := range set.Profiles[p.Pods.Profile()] {
			c.add(p, namespace, labels[p])
		}
	}
	if !isolated {
		for _, e := range set.EgressIPs {
			c.join(&group{name: egressGroupName(e.Name), peers: []podPeer{{namespaces: &e.Namespaces, pods: &e.Pods}}})
		}
	}
	return c
}

// add adds a policy for the pods of a namespace. name is its name in names of ACEs.
func (c *policies) add(p *coe.PolicySpec, namespace, name string) {
	if !p.Ingress.Isolates && !p.Egress.Isolates {
		return
	}
	of := c.subjects[namespace]
	if of == nil {
		of = map[string]*subjects{}
		c.subjects[namespace] = of
	}
	key := canonical(&p.Pods)
	s := of[key]
	if s == nil {
		s = &subjects{key: key, selector: &p.Pods, acls: map[string]*acl{}}
		of[key] = s
	}
	s.ingress = s.ingress || p.Ingress.Isolates
	s.egress = s.egress || p.Egress.Isolates
	for _, d := range directions {
		for i := range p.Side(d.coe).Rules {
			rule := &p.Side(d.coe).Rules[i]
			c.addRule(s, namespace, entry{direction: d.acl, policy: name, rule: i, families: familiesOf(rule.Family)}, rule)
		}
	}
}

// addRule adds the entries of a rule: one with all its numeric ports, and one for each number of
// each named port. A named port is a port of the destination: of the selected pods if the
// direction is ingress, else of the peers.
func (c *policies) addRule(s *subjects, namespace string, e entry, r *coe.PolicyRule) {
	all := c.newGroup(namespace, r.Peers)
	e.families &= all.families()
	if e.direction == netvirt.Ingress {
		c.join(all) // also if no pod has the named ports: the numbers do not decide who is a member
	}
	var numeric []netvirt.PortRange
	named := map[coe.PolicyPort]bool{}
	for _, port := range r.Ports {
		if port.Name != "" {
			if named[port] {
				continue
			}
			named[port] = true
			peers := all
			if port.Namespace != "" {
				peers = c.within(port.Namespace, all)
			}
			for _, number := range c.numbers(namespace, e.direction, r, port) {
				c.addNamed(s, namespace, e, peers, coe.ContainerPort{Name: port.Name, Protocol: port.Protocol, Port: number})
			}
		} else {
			numeric = append(numeric, netvirt.PortRange{Protocol: netvirt.Protocol(port.Protocol), First: port.First, Last: port.Last})
		}
	}
	if len(numeric) > 0 || len(r.Ports) == 0 {
		e.remote, e.ports = c.join(all), netvirt.NewPortList(numeric...)
		s.acl(aclName(namespace, s.key, nil), nil).add(e)
	}
}

// numbers returns the numbers that the destinations of a rule can have for a named port. These are pods
// of the namespace alone, unless an egress rule has other peers.
func (c *policies) numbers(namespace string, d netvirt.Direction, r *coe.PolicyRule, port coe.PolicyPort) []uint16 {
	name := coe.NamedPort{Name: port.Name, Protocol: port.Protocol}
	if d == netvirt.Ingress || c.isolated || port.Namespace != "" || !r.LeavesNamespace() {
		name.Namespace = namespace
	}
	return c.set.NamedPorts[name]
}

// addNamed adds the entries of a rule for one number of a named port.
func (c *policies) addNamed(s *subjects, namespace string, e entry, all *group, port coe.ContainerPort) {
	e.suffix = portSuffix(&port)
	e.ports = netvirt.NewPortList(netvirt.PortRange{Protocol: netvirt.Protocol(port.Protocol), First: port.Port, Last: port.Port})
	if e.direction == netvirt.Ingress {
		e.remote = c.join(all)
		s.acl(aclName(namespace, s.key, &port), &port).add(e)
		return
	}
	allowed := e.families
	for _, g := range c.withPort(namespace, all, &port) {
		e.remote, e.families = c.join(g.group), g.of&allowed
		s.acl(aclName(namespace, s.key, nil), nil).add(e)
	}
}

// familyGroup is a group for connections of some families.
type familyGroup struct {
	*group
	of familySet
}

// withPort returns the pods of a group that have a port. If the group is nil, these are all pods.
// A pod of both families can have one address in the group's prefixes and one outside. So if
// there are prefixes, each family has a group.
func (c *policies) withPort(namespace string, g *group, port *coe.ContainerPort) []familyGroup {
	if g == nil {
		g = c.newGroup(namespace, everyPod)
	}
	with := *g
	with.port = port
	if g.prefixes == nil {
		with.name += portSuffix(port)
		return []familyGroup{{&with, hasIPv4 | hasIPv6}}
	}
	var both []familyGroup
	for _, f := range []familySet{hasIPv4, hasIPv6} {
		if g.families()&f != 0 {
			one := with
			one.prefixes = ofFamily(g.prefixes, f)
			one.name += portSuffix(port) + ":" + string(f.all()[0])
			both = append(both, familyGroup{&one, f})
		}
	}
	return both
}

// everyPod are the pods of all namespaces, as peers.
var everyPod = []coe.PolicyPeer{{Namespaces: &coe.Selector{}}}

// within returns the members of a group in a namespace. If the group is nil, these are all its pods.
func (c *policies) within(namespace string, g *group) *group {
	if g == nil {
		g = c.newGroup(namespace, everyPod)
	}
	own := *g
	own.namespace = namespace
	own.name = groupName(&own)
	return &own
}

// ofFamily returns the addresses of one family.
func ofFamily(set *netipx.IPSet, f familySet) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, p := range set.Prefixes() {
		if familyOf(p.Addr()) == f {
			b.AddPrefix(p)
		}
	}
	return built(&b)
}

// built returns the set of a builder. That fails only for invalid prefixes.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		panic("blocks of policies are valid: " + err.Error())
	}
	return set
}

// newGroup returns the group of the peers of a rule; nil for everyone.
func (c *policies) newGroup(namespace string, peers []coe.PolicyPeer) *group {
	if len(peers) == 0 && c.separates {
		return c.ownGroup(namespace)
	}
	if len(peers) == 0 {
		return nil
	}
	g := &group{podsOnly: c.separates}
	if c.isolated {
		g.namespace = namespace
	}
	var blocks netipx.IPSetBuilder
	hasBlock := false
	for i := range peers {
		p := &peers[i]
		if p.Block == nil {
			peer := podPeer{namespaces: p.Namespaces, pods: &p.Pods}
			if p.Namespaces == nil {
				peer.own = namespace
			}
			g.peers = append(g.peers, peer)
			continue
		}
		hasBlock = true
		var block netipx.IPSetBuilder
		block.AddPrefix(p.Block.CIDR)
		for _, except := range p.Block.Except {
			block.RemovePrefix(except)
		}
		blocks.AddSet(built(&block))
	}
	if hasBlock {
		g.prefixes = built(&blocks)
	}
	g.name = groupName(g)
	return g
}

// join adds a group, and returns its name; empty for everyone.
func (c *policies) join(g *group) string {
	if g == nil {
		return ""
	}
	c.groups[g.name] = g
	return g.name
}

// families returns the families that connections with the group can have.
func (g *group) families() familySet {
	if g == nil || len(g.peers) > 0 {
		return hasIPv4 | hasIPv6
	}
	var f familySet
	for _, p := range g.prefixes.Prefixes() {
		f |= familyOf(p.Addr())
	}
	return f
}

// object returns the RemoteGroup.
func (g *group) object() netvirt.RemoteGroup {
	o := netvirt.RemoteGroup{Name: g.name, Namespace: g.namespace}
	if g.prefixes != nil && !g.byAddress() {
		o.Prefixes = netvirt.NewPrefixList(g.prefixes.Prefixes()...)
	}
	return o
}

// acl returns the ACL with a name, which it creates.
func (s *subjects) acl(name string, port *coe.ContainerPort) *acl {
	a := s.acls[name]
	if a == nil {
		a = &acl{name: name, port: port}
		s.acls[name] = a
	}
	return a
}

func (a *acl) add(e entry) { a.entries = append(a.entries, e) }

// byAddress reports whether the pods with an address of the prefixes are members instead of the prefixes.
func (g *group) byAddress() bool { return g.prefixes != nil && (g.port != nil || g.podsOnly) }

// isolates reports whether pods can be isolated.
func (c *policies) isolates() bool { return len(c.subjects) > 0 || c.separates }

// nodeAddresses returns the addresses that policies take for a node, with the addresses of its management port. port is nil if it
// has none.
func nodeAddresses(addr netip.Addr, n *coe.Node, port *netvirt.ManagementPort) []netip.Addr {
	addresses := []netip.Addr{addr}
	if n != nil && n.ExternalIP.IsValid() && n.ExternalIP.Is4() != addr.Is4() {
		addresses = append(addresses, n.ExternalIP)
	}
	if port == nil {
		return addresses
	}
	for _, a := range port.Families() {
		addresses = append(addresses, a.Address, a.Service)
	}
	if port.Second.IsValid() {
		addresses = append(addresses, port.Second)
	}
	return addresses
}

// nodePolicy returns the RemoteGroup of a node, and the ACL for what isolated pods and their own node may do: everything that is not
// withheld. The group has the addresses of the node and of its management port. It lacks the addresses with which others
// connect too: its EdgeAddress, and an ExternalIP beside an address of the same family, which is that of a NAT.
func (s Settings) nodePolicy(addr netip.Addr, values nodeValues, port *netvirt.ManagementPort) []netvirt.Object {
	addresses := nodeAddresses(addr, values.node, port)
	if values.isolatedIPv6.IsValid() {
		addresses = append(addresses, values.isolatedIPv6)
	}
	name, group, families := netvirt.NodeACLName(addr), netvirt.NodeGroupName(addr), familySet(0)
	for _, a := range addresses {
		families |= familyOf(a)
	}
	objects := []netvirt.Object{
		netvirt.RemoteGroup{Name: group, Prefixes: netvirt.NewPrefixList(single(addresses...)...)},
		netvirt.ACL{Name: name, Yields: s.withholds()},
	}
	for _, d := range directions {
		for _, f := range families.all() {
			objects = append(objects, netvirt.ACE{ACL: name, Name: fmt.Sprintf("%s:%s", d.acl, f), Direction: d.acl, Family: f, Remote: group})
		}
	}
	return objects
}

// namespacePolicies is what policies mean for the pods of one namespace.
type namespacePolicies struct {
	labels   coe.Labels
	subjects []*subjects // of network policies
	// profiles are the subjects of security profiles, by name. A tenant can name thousands that do not
	// exist, so no pod is compared with all of them.
	profiles map[string]*subjects
	groups   []*membersGroup // sorted by name
	own      *group          // the pods of the namespace; nil unless ACLs keep namespaces apart
	egress   []*coe.EgressIP // that may select its pods, sorted by number
}

// allSubjects returns the subjects of network policies and of security profiles.
func (n *namespacePolicies) allSubjects() []*subjects {
	return slices.AppendSeq(slices.Clone(n.subjects), maps.Values(n.profiles))
}

// membersGroup is a group, with its selectors that count in a namespace.
type membersGroup struct {
	*group
	selectors []*coe.Selector
}

// egressOf returns the EgressIPs that may select pods of a namespace with some labels, sorted by number.
func (c *policies) egressOf(namespace coe.Labels) (all []*coe.EgressIP) {
	for _, e := range c.set.EgressIPs {
		if !c.isolated && e.Namespaces.Matches(namespace) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *coe.EgressIP) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// namespace returns what the policies mean for a namespace: always the same pointer.
func (c *policies) namespace(name string) *namespacePolicies {
	if known := c.namespaces[name]; known != nil {
		return known
	}
	n := &namespacePolicies{labels: c.set.LabelsOf(name), profiles: map[string]*subjects{}}
	for _, s := range c.subjects[name] {
		if profile := s.selector.Profile(); profile != "" {
			n.profiles[profile] = s
		} else {
			n.subjects = append(n.subjects, s)
		}
	}
	for _, g := range c.groups {
		if g.namespace != "" && g.namespace != name {
			continue
		}
		here := &membersGroup{group: g}
		for _, p := range g.peers {
			if p.namespaces == nil && p.own == name || p.namespaces != nil && p.namespaces.Matches(n.labels) {
				here.selectors = append(here.selectors, p.pods)
			}
		}
		if len(here.selectors) > 0 || g.byAddress() {
			n.groups = append(n.groups, here)
		}
	}
	n.seeOwnGroup(c, name)
	slices.SortFunc(n.groups, func(a, b *membersGroup) int { return cmp.Compare(a.name, b.name) })
	n.egress = c.egressOf(n.labels)
	c.namespaces[name] = n
	return n
}
