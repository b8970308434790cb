package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Cluster maps the objects of the cluster's scope: the nodes, the transit that connects
// the vpn-instances, the node network that joins the two, the gateways, and the RemoteGroups of policies. The problems are sorted.
//
// Under IsolationNamespace neither transit nor node network exists: namespaces may have
// the same addresses, so a node cannot reach a pod by its address.
func Cluster(v coe.ClusterView, s Settings) (netvirt.Model, []coe.Problem) {
	return mapCluster(v, s, s.compile(v.PolicySet))
}

// mapCluster is Cluster with the policies of the view's PolicySet.
func mapCluster(v coe.ClusterView, s Settings, all *policies) (netvirt.Model, []coe.Problem) {
	m := make(netvirt.Model, 2*len(v.Nodes)+2)
	s.addNodes(m, v)
	problems := slices.Concat(v.Damaged, v.AddressProblems, v.EgressProblems)
	for _, p := range v.Policies {
		problems = append(problems, s.policyProblems(p)...)
	}
	problems = append(problems, s.profileProblems(v.PolicySet)...)
	if target := s.transit(); target != "" {
		m.Add(netvirt.Transit{RouteTarget: target})
		if v.Networks != nil && !v.Networks.Isolated {
			problems = append(problems, joinNodes(m, v, target)...)
			if !s.Separates() {
				addEgressIPs(m, v, target, all)
			}
		}
	}
	problems = append(problems, s.gateways(m, v)...)
	if all != nil {
		all.addCluster(m, v)
	}
	slices.SortFunc(problems, func(a, b coe.Problem) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.UID, b.UID))
	})
	return m, problems
}

// addNodes adds the nodes. If the backend needs gateways, a node has the gateways of its blocks, and it exists as long as it has a
// block: its pods may run although no source reports it. The blocks of a namespace with a physical network are behind gateways of
// its own, except the blocks that it shares.
func (s Settings) addNodes(m netvirt.Model, v coe.ClusterView) {
	of := map[netip.Addr][]netip.Prefix{}
	if s.Limits.NodeGateways {
		for _, b := range v.Blocks {
			node, namespace, err := netvirt.ParseELANName(b.ELAN)
			network := b.Prefix
			if b.Shared.IsValid() {
				network = b.Shared
			} else if s.Physical.ForNamespace(namespace) != nil {
				continue
			}
			if err == nil {
				of[node] = append(of[node], netip.PrefixFrom(b.Gateway, network.Bits()))
			}
		}
	}
	for addr, all := range of {
		m.Add(netvirt.Node{Address: addr, Gateways: netvirt.NewGatewayList(all...)})
	}
	for addr, n := range v.Nodes {
		m.Add(netvirt.Node{Address: addr, HostName: n.HostName, Gateways: netvirt.NewGatewayList(of[addr]...)})
	}
}

// joinNodes gives each node that has a number a management port, and joins them with a
// transit. It returns a problem for each node that can have no number, or no edge address.
func joinNodes(m netvirt.Model, v coe.ClusterView, transit string) (problems []coe.Problem) {
	network, numbers := v.Networks.Nodes, newNumbering(v.Networks, v.Numbers)
	if numbers.taken > 0 {
		o := netvirt.NodeNetwork{Prefix: network.Masked(), Gateway: network.Gateway(), Transit: transit, OneWay: len(v.EgressIPs) > 0}
		if six := v.Networks.NodesIPv6; six.IsValid() {
			o.PrefixIPv6, o.GatewayIPv6 = six.Masked(), six.Gateway()
		}
		m.Add(o)
	}
	for addr, n := range v.Nodes {
		number, lacks := numbers.of(addr)
		if number != 0 {
			m.Add(managementPort(addr, n, v.Networks, number, numbers.last))
		}
		if lacks != "" {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.IDsExhausted,
				Message: fmt.Sprintf("%s has no free address for %s: set a larger --node-network, or delete nodes that no longer exist", network, lacks),
			})
		}
	}
	return problems
}

// numbering has the numbers of nodes, which decide on the addresses of their management ports.
type numbering struct {
	network coe.NodeNetwork
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

// of returns the number of a node, 0 for none, and what the node lacks because the range has no more addresses.
func (n numbering) of(node netip.Addr) (number uint32, lacks string) {
	if fact := n.facts[node]; fact != nil {
		number = fact.Number
	}
	switch {
	case number == 0 && n.taken >= int(n.network.Numbers()):
		lacks = "the node's management port, so the node and pods do not reach each other, and its pods do not reach other networks"
	case number != 0 && !n.network.EdgeAddress(number, n.last).IsValid():
		lacks = "the edge address of the node, so the node leads only its own programs to services, and does not answer on node ports"
	}
	return number, lacks
}

func managementPort(addr netip.Addr, n *coe.Node, networks *coe.Networks, number, last uint32) netvirt.ManagementPort {
	network := networks.Nodes
	port := netvirt.ManagementPort{
		Node: addr, Network: network.Masked(), Chassis: n.HostName,
		Address: network.Address(number), ServiceAddress: network.ServiceAddress(number), EdgeAddress: network.EdgeAddress(number, last),
		MAC: network.MAC(number),
	}
	if six := networks.NodesIPv6; six.Has(number) {
		port.IPv6 = netvirt.NodeAddresses{Address: six.Address(number), Service: six.ServiceAddress(number), Edge: six.EdgeAddress(number, last)}
	}
	if n.SecondIP.Is4() || port.IPv6.Address.IsValid() {
		port.Second = n.SecondIP
	}
	return port
}
