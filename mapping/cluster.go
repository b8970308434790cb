package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Cluster maps the objects of the cluster's scope: the nodes, the transit that connects
// the vpn-instances, the node network that joins the two, the gateways, the RemoteGroups of policies, and the ACLs of nodes. The problems are sorted.
//
// Under IsolationNamespace neither transit nor node network exists: namespaces may have
// the same addresses, so a node cannot reach a pod by its address.
func Cluster(v coe.ClusterView, s Settings) (netvirt.Model, []coe.Problem) {
	parts, problems := mapCluster(v, s, s.compile(v.PolicySet), &mappedNodes{})
	return parts.Model(), problems
}

// mapCluster is Cluster with the policies of the view's PolicySet, and with the nodes of the last mapping, which it updates.
func mapCluster(v coe.ClusterView, s Settings, all *policies, nodes *mappedNodes) (netvirt.Parts, []coe.Problem) {
	rest := netvirt.Model{}
	problems := slices.Concat(v.Damaged, v.AddressProblems, v.EgressProblems)
	for _, p := range v.Policies {
		problems = append(problems, s.policyProblems(p)...)
	}
	problems = append(problems, s.profileProblems(v.PolicySet)...)
	joined := s.transit() != "" && v.Networks != nil && !v.Networks.Isolated
	var numbers numbering
	if joined {
		numbers = newNumbering(v.Networks, v.Numbers)
	}
	nodes.update(v, s, numbers, all)
	if target := s.transit(); target != "" {
		rest.Add(netvirt.Transit{RouteTarget: target})
		if joined {
			problems = append(problems, joinNodes(rest, v, numbers, target)...)
			if !s.Separates() {
				addEgressIPs(rest, v, target, all)
			}
		}
	}
	if s.Isolated() && s.nodesBalance() && v.Networks != nil {
		problems = append(problems, nodeProblems(v, newNumbering(v.Networks, v.Numbers).lacksEdge)...)
		problems = append(problems, withoutIPv4(v.Nodes)...)
	}
	problems = append(problems, s.gateways(rest, v, nodes)...)
	slices.SortFunc(problems, func(a, b coe.Problem) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.UID, b.UID))
	})
	return nodes.parts.With(map[string]*netvirt.Part{"": netvirt.RestPart(rest)}), problems
}

// mappedNodes are the nodes and the RemoteGroups of the last mapping of the cluster's scope.
type mappedNodes struct {
	view     coe.ClusterView // zero before the first mapping
	isolates bool            // policies can isolate pods
	nodes    map[netip.Addr]*mappedNode
	groups   mappedGroups
	parts    netvirt.Parts // of nodes and groups
}

// mappedNode is a node with the values that its objects are made from. It keeps them while the values are the same.
type mappedNode struct {
	nodeValues
	part *netvirt.Part // nil if the node is not in the model
}

type nodeValues struct {
	node     *coe.Node     // nil if no source reports it
	blocks   **coe.Block   // the first of the node's blocks; nil if there is none, or the backend needs no gateways of nodes
	networks *coe.Networks // nil if the node has no management port, as number is 0
	number   uint32
	edges    edges
	chassis  string // empty if it is not known for certain, or the backend needs no gateways of nodes
	// isolates: policies can isolate pods. isolatedIPv6 is the node's address for isolated namespaces then, if they have IPv6.
	isolates     bool
	isolatedIPv6 netip.Addr
}

// edges are the edge addresses of a node. They depend on the highest number of all nodes.
type edges struct{ ipv4, ipv6 netip.Addr }

// update maps the nodes and the groups that have changed. all is nil if the backend has no ACLs.
func (m *mappedNodes) update(v coe.ClusterView, s Settings, numbers numbering, all *policies) {
	changed, isolates := map[string]*netvirt.Part{}, all != nil && all.isolates()
	for addr := range m.stale(v, isolates) {
		if before, now := m.view.Blocks[addr], v.Blocks[addr]; firstOf(before) != firstOf(now) {
			m.groups.count(before, -1)
			m.groups.count(now, 1)
		}
		if v.Nodes[addr] == nil && len(v.Blocks[addr]) == 0 {
			delete(m.nodes, addr)
			changed[netvirt.NodePart(addr)] = nil
			continue
		}
		values := s.nodeValues(addr, v, numbers, isolates)
		if before := m.nodes[addr]; before == nil || before.nodeValues != values {
			m.nodes[addr] = &mappedNode{values, s.nodePart(addr, values, v.Blocks[addr])}
			changed[netvirt.NodePart(addr)] = m.nodes[addr].part
		}
	}
	if all != nil {
		m.groups.update(all, changed)
	}
	m.view, m.isolates, m.parts = v, isolates, m.parts.With(changed)
}

// stale returns the nodes that may have changed since the last mapping: those with other blocks, or all.
func (m *mappedNodes) stale(v coe.ClusterView, isolates bool) map[netip.Addr]bool {
	stale := map[netip.Addr]bool{}
	if m.nodes == nil || !same(v.Nodes, m.view.Nodes) || !same(v.Numbers, m.view.Numbers) || v.Networks != m.view.Networks || isolates != m.isolates {
		if m.nodes == nil {
			m.nodes = map[netip.Addr]*mappedNode{}
		}
		for addr := range m.nodes {
			stale[addr] = true
		}
		for addr := range v.Nodes {
			stale[addr] = true
		}
	}
	for addr, blocks := range v.Blocks {
		if firstOf(blocks) != firstOf(m.view.Blocks[addr]) {
			stale[addr] = true
		}
	}
	for addr := range m.view.Blocks {
		if len(v.Blocks[addr]) == 0 {
			stale[addr] = true
		}
	}
	return stale
}

// firstOf identifies the blocks of a node, whose slice is replaced as a whole; nil if there are none.
func firstOf(blocks []*coe.Block) **coe.Block {
	if len(blocks) == 0 {
		return nil
	}
	return &blocks[0]
}

// nodeValues returns the values that the objects of a node are made from.
func (s Settings) nodeValues(addr netip.Addr, v coe.ClusterView, numbers numbering, isolates bool) nodeValues {
	values := nodeValues{node: v.Nodes[addr], isolates: isolates}
	if isolates && v.Networks.IsolatesIPv6() {
		values.isolatedIPv6 = nodenet.IsolatedIPv6(addr)
	}
	if fact := numbers.facts[addr]; values.node != nil && fact != nil && fact.Number != 0 {
		values.networks, values.number, values.edges = v.Networks, fact.Number, numbers.edges(v.Networks, fact.Number)
	}
	if !s.Limits.NodeGateways {
		return values
	}
	values.blocks = firstOf(v.Blocks[addr])
	if fact := v.Numbers[addr]; fact != nil && !fact.ChassisChanged {
		values.chassis = fact.Chassis
	}
	return values
}

// port returns the management port of a node; nil if it has none.
func (m *mappedNodes) port(node netip.Addr) *netvirt.ManagementPort {
	n := m.nodes[node]
	if n == nil || n.networks == nil {
		return nil
	}
	return new(managementPort(node, n.nodeValues))
}

// nodePart returns the objects of a node; nil if it has none. If the backend needs gateways, a node has the gateways of its blocks, and
// it exists as long as it has one: its pods may run although no source reports it.
func (s Settings) nodePart(addr netip.Addr, values nodeValues, blocks []*coe.Block) *netvirt.Part {
	o := netvirt.Node{Address: addr, Chassis: values.chassis}
	if values.blocks != nil {
		o.Gateways = s.gatewaysOf(blocks)
	}
	if values.node == nil && o.Gateways == "" {
		return nil
	}
	if values.node == nil {
		return netvirt.NewPart(o)
	}
	o.HostName = values.node.HostName
	objects := []netvirt.Object{o}
	var port *netvirt.ManagementPort
	if values.networks != nil {
		port = new(managementPort(addr, values))
		objects = append(objects, *port)
	}
	if values.isolates {
		objects = append(objects, s.nodePolicy(addr, values, port)...)
	}
	return netvirt.NewPart(objects...)
}

// gatewaysOf returns the gateways of a node's blocks. The blocks of a namespace with a physical network are behind gateways of
// its own, except the blocks that it shares.
func (s Settings) gatewaysOf(blocks []*coe.Block) netvirt.GatewayList {
	var all []netip.Prefix
	for _, b := range blocks {
		network := b.Prefix
		if b.Shared.IsValid() {
			network = b.Shared
		} else if _, namespace, _ := netvirt.ParseELANName(b.ELAN); s.Physical.ForNamespace(namespace) != nil {
			continue
		}
		all = append(all, netip.PrefixFrom(b.Gateway, network.Bits()))
	}
	return netvirt.NewGatewayList(all...)
}

// joinNodes joins the management ports of nodes with a transit. It returns a problem for each node that can have no number, or no
// edge address.
func joinNodes(m netvirt.Model, v coe.ClusterView, numbers numbering, transit string) []coe.Problem {
	network := v.Networks.Nodes
	if numbers.taken > 0 {
		o := netvirt.NodeNetwork{Prefix: network.Masked(), Gateway: network.Gateway(), Transit: transit, OneWay: len(v.EgressIPs) > 0}
		if six := v.Networks.NodesIPv6; six.IsValid() {
			o.PrefixIPv6, o.GatewayIPv6 = six.Masked(), six.Gateway()
		}
		m.Add(o)
	}
	return nodeProblems(v, numbers.lacks)
}

// nodeProblems returns a problem for each node that lacks something because the range of nodes has no more addresses.
func nodeProblems(v coe.ClusterView, lacking func(netip.Addr) string) (problems []coe.Problem) {
	for addr, n := range v.Nodes {
		if lacks := lacking(addr); lacks != "" {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.IDsExhausted,
				Message: fmt.Sprintf("%s has no free address for %s: set a larger --node-network, or delete nodes that no longer exist", v.Networks.Nodes, lacks),
			})
		}
	}
	return problems
}

// withoutIPv4 returns a problem for each node that leads no pods of isolated namespaces to services because it has no IPv4 address.
func withoutIPv4(nodes map[netip.Addr]*coe.Node) (problems []coe.Problem) {
	for addr, n := range nodes {
		if addr.Is6() {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.NotEnforced,
				Message: fmt.Sprintf("its pods reach no services: on OpenDaylight pods of isolated namespaces send to services by the IPv4 address of their node, and the address of this node is %s", addr),
			})
		}
	}
	return problems
}

// numbering has the numbers of nodes, which decide on the addresses of their management ports.
type numbering struct {
	network nodenet.Range
	facts   map[netip.Addr]*coe.NodeFact
	taken   int
	last    uint32 // the highest one
}

func newNumbering(networks *coe.Networks, facts map[netip.Addr]*coe.NodeFact) numbering {
	n := numbering{network: networks.Nodes, facts: facts}
	for _, fact := range facts {
		if fact.Number != 0 {
			n.taken, n.last = n.taken+1, max(n.last, fact.Number)
		}
	}
	return n
}

// lacks returns what a node lacks because the range has no more addresses.
func (n numbering) lacks(node netip.Addr) string {
	var number uint32
	if fact := n.facts[node]; fact != nil {
		number = fact.Number
	}
	switch {
	case number == 0 && n.taken >= int(n.network.Numbers()):
		return "the node's management port, so the node and pods do not reach each other, and its pods do not reach other networks"
	case number != 0 && !n.network.EdgeAddress(number, n.last).IsValid():
		return "the edge address of the node, so the node leads only its own programs to services, and does not answer on node ports"
	}
	return ""
}

// lacksEdge is lacks for a node in isolated namespaces.
func (n numbering) lacksEdge(node netip.Addr) string {
	if fact := n.facts[node]; node.Is6() || fact != nil && fact.Number != 0 || n.taken < int(n.network.Numbers()) {
		return ""
	}
	return "the node, so its pods reach no services"
}

// edges returns the edge addresses of the node with a number.
func (n numbering) edges(networks *coe.Networks, number uint32) (e edges) {
	e.ipv4 = networks.Nodes.EdgeAddress(number, n.last)
	if six := networks.NodesIPv6; six.Has(number) {
		e.ipv6 = six.EdgeAddress(number, n.last)
	}
	return e
}

func managementPort(addr netip.Addr, values nodeValues) netvirt.ManagementPort {
	network, number, n := values.networks.Nodes, values.number, values.node
	port := netvirt.ManagementPort{
		Node: addr, Network: network.Masked(), Chassis: n.HostName,
		Address: network.Address(number), ServiceAddress: network.ServiceAddress(number), EdgeAddress: values.edges.ipv4,
		MAC: network.MAC(number),
	}
	if six := values.networks.NodesIPv6; six.Has(number) {
		port.IPv6 = netvirt.NodeAddresses{Address: six.Address(number), Service: six.ServiceAddress(number), Edge: values.edges.ipv6}
	}
	if n.SecondIP.Is4() || port.IPv6.Address.IsValid() {
		port.Second = n.SecondIP
	}
	return port
}
