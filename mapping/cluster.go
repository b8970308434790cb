package mapping

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Cluster maps what belongs to no namespace: the nodes, what connects the
// vpn-instances, and how the two are joined.
//
// While each namespace has an address space of its own there is nothing that nodes
// could be joined with: an address does not tell whose pod is meant.
func Cluster(v coe.ClusterView, s Settings) netvirt.Model {
	m := make(netvirt.Model, 2*len(v.Nodes)+2)
	for addr, n := range v.Nodes {
		m.Add(netvirt.Node{Address: addr, HostName: n.HostName})
	}
	target := s.transit()
	if target == "" {
		return m
	}
	m.Add(netvirt.Transit{RouteTarget: target})
	if v.Networks != nil && len(v.Numbers) > 0 {
		joinNodes(m, v, target)
	}
	return m
}

// joinNodes joins the nodes for which a number was chosen with a transit.
func joinNodes(m netvirt.Model, v coe.ClusterView, transit string) {
	network := v.Networks.Nodes
	m.Add(netvirt.NodeNetwork{Prefix: network.Masked(), Gateway: network.Gateway(), Transit: transit})
	for addr, n := range v.Nodes {
		if fact := v.Numbers[addr]; fact != nil {
			m.Add(managementPort(addr, n, network, fact.Number))
		}
	}
}

func managementPort(addr netip.Addr, n *coe.Node, network coe.NodeNetwork, number uint32) netvirt.ManagementPort {
	return netvirt.ManagementPort{
		Node: addr, Network: network.Masked(), Chassis: n.HostName,
		Address: network.Address(number), ServiceAddress: network.ServiceAddress(number), MAC: network.MAC(number),
	}
}
