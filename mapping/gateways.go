package mapping

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/gateway"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// gateways maps the gateways, and returns their problems.
func (s Settings) gateways(m netvirt.Model, v coe.ClusterView, nodes *mappedNodes) (problems []coe.Problem) {
	if len(v.Gateways) == 0 {
		return nil
	}
	c := gateway.Cluster{ClusterView: v, Own: map[netip.Addr][]netip.Prefix{}, External: s.External.All(), NodePorts: s.NodePorts}
	for _, o := range m.Select(netvirt.NewKindSet(netvirt.KindNodeNetwork)) { // there is one at most
		c.Network, _ = o.(netvirt.NodeNetwork)
	}
	if c.Network.Prefix.IsValid() && s.servesGateways() {
		c.Network.OnNode, c.Network.GatewayLinks = netvirt.NewPrefixList(gateway.OnNode(c.External, v.Gateways)...), gateway.Links(c.Network, v.Gateways)
		m.Add(c.Network)
	}
	reason, message := s.noGateways(c.Network)
	if reason == "" {
		c.Joined = nodes.joined()
	}
	for _, g := range v.Gateways {
		name, lacks := "", []coe.Problem{{Reason: reason, Message: message}}
		if n := v.Nodes[g.Node]; n != nil {
			name = n.HostName
		}
		if port := nodes.port(g.Node); port != nil {
			c.Own[g.Node] = single(nodeAddresses(g.Node, v.Nodes[g.Node], port)...)
		}
		if reason == "" {
			var o netvirt.Gateway
			o, lacks = gateway.Map(c, g)
			m.Add(o)
		}
		for _, p := range lacks {
			p.Kind, p.UID, p.Name = "gateway", g.Node.String(), name
			problems = append(problems, p)
		}
	}
	return problems
}

// servesGateways reports whether the model has gateways if there are some.
func (s Settings) servesGateways() bool {
	return !s.Limits.NoGateways && !s.Isolated() && !s.Separates() && s.ManagementPorts
}

// noGateways returns why the model has no gateways; empty if it has.
func (s Settings) noGateways(network netvirt.NodeNetwork) (coe.Reason, string) {
	switch {
	case s.Limits.NoGateways:
		return coe.NotEnforced, "the backend has no gateways; pods leave the network by their own nodes"
	case s.Isolated(), s.Separates():
		return coe.NotEnforced, "a gateway serves all namespaces, so there are none with --isolation namespace"
	case !s.ManagementPorts:
		return coe.NotEnforced, "pods do not leave the network, because nodes have no management ports: set --node-network"
	case !network.Prefix.IsValid():
		return coe.Waiting, "no node has a management port yet"
	}
	return "", ""
}

// HasGateways reports whether pods leave by gateways, once nodes have management ports.
func (s Settings) HasGateways() bool {
	reason, _ := s.noGateways(netvirt.NodeNetwork{})
	return reason == coe.Waiting
}

// single returns addresses as prefixes.
func single(all ...netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return prefixes
}

// joined returns the addresses of the nodes with management ports.
func (m *mappedNodes) joined() (all []netip.Prefix) {
	for node := range m.nodes {
		port := m.port(node)
		if port == nil {
			continue
		}
		all = append(all, single(node)...)
		if port.Second.IsValid() {
			all = append(all, single(port.Second)...)
		}
	}
	return all
}
