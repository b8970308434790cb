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

// Cluster maps what belongs to no namespace: the nodes, what connects the
// vpn-instances, and how the two are joined. The problems are sorted.
//
// While each namespace has an address space of its own there is nothing that nodes
// could be joined with: an address does not tell whose pod is meant.
func Cluster(v coe.ClusterView, s Settings) (netvirt.Model, []coe.Problem) {
	m := make(netvirt.Model, 2*len(v.Nodes)+2)
	for addr, n := range v.Nodes {
		m.Add(netvirt.Node{Address: addr, HostName: n.HostName})
	}
	problems := slices.Concat(v.Damaged, v.Misaddressed)
	for _, p := range v.Policies {
		problems = append(problems, policyProblem(p))
	}
	if target := s.transit(); target != "" {
		m.Add(netvirt.Transit{RouteTarget: target})
		if v.Networks != nil {
			problems = append(problems, joinNodes(m, v, target)...)
		}
	}
	slices.SortFunc(problems, func(a, b coe.Problem) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.UID, b.UID))
	})
	return m, problems
}

// joinNodes joins the nodes for which a number was chosen with a transit.
func joinNodes(m netvirt.Model, v coe.ClusterView, transit string) (problems []coe.Problem) {
	network := v.Networks.Nodes
	numbered := 0
	for _, fact := range v.Numbers {
		if fact.Number != 0 {
			numbered++
		}
	}
	if numbered > 0 {
		m.Add(netvirt.NodeNetwork{Prefix: network.Masked(), Gateway: network.Gateway(), Transit: transit})
	}
	for addr, n := range v.Nodes {
		if fact := v.Numbers[addr]; fact != nil && fact.Number != 0 {
			m.Add(managementPort(addr, n, network, fact.Number))
		} else if numbered >= int(network.Numbers()) {
			problems = append(problems, coe.Problem{
				Kind: "node", UID: n.UID, Name: n.HostName, Reason: coe.IDsExhausted,
				Message: fmt.Sprintf("no address of %s is left for its management port, so it does not reach pods, nor they what is beyond it: "+
					"give a larger --node-network, or delete nodes that are gone", network),
			})
		}
	}
	return problems
}

func managementPort(addr netip.Addr, n *coe.Node, network coe.NodeNetwork, number uint32) netvirt.ManagementPort {
	return netvirt.ManagementPort{
		Node: addr, Network: network.Masked(), Chassis: n.HostName,
		Address: network.Address(number), ServiceAddress: network.ServiceAddress(number), MAC: network.MAC(number),
	}
}
