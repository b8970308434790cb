package mapping

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// linkLocal has addresses that mean another machine, or a program, on each node.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// gateways maps the gateways, and returns their problems.
func (s Settings) gateways(m netvirt.Model, v coe.ClusterView) (problems []coe.Problem) {
	if len(v.Gateways) == 0 {
		return nil
	}
	var network netvirt.NodeNetwork
	for _, o := range m.Select(netvirt.NewKindSet(netvirt.KindNodeNetwork)) { // there is one at most
		network, _ = o.(netvirt.NodeNetwork)
	}
	if network.Prefix.IsValid() && s.servesGateways() {
		network.OnNode = netvirt.NewPrefixList(s.onNode(v.Gateways)...)
		m.Add(network)
	}
	for _, g := range v.Gateways {
		name := ""
		if n := v.Nodes[g.Node]; n != nil {
			name = n.HostName
		}
		for _, p := range s.gateway(m, v, network, g) {
			p.Kind, p.UID, p.Name = "gateway", g.Node.String(), name
			problems = append(problems, p)
		}
	}
	return problems
}

// servesGateways reports whether the model has gateways if there are some.
func (s Settings) servesGateways() bool {
	return !s.Limits.NoGateways && !s.Isolated() && s.ManagementPorts
}

// minExternalBits is the least length of the prefix of a range of external addresses that pods reach by their own
// nodes: a few shorter ones have every address, and no packet would leave by a gateway.
const minExternalBits = 8

// onNode returns the ranges outside that pods reach by their own nodes although they leave by gateways.
func (s Settings) onNode(gateways []*coe.Gateway) []netip.Prefix {
	return append(s.externalAtGateways(gateways), linkLocal)
}

// externalAtGateways returns the ranges of external addresses that have services only.
func (s Settings) externalAtGateways(gateways []*coe.Gateway) []netip.Prefix {
	return slices.DeleteFunc(only4(s.External.All()), func(p netip.Prefix) bool {
		return slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return tooWide(p, g) != "" })
	})
}

// tooWide returns why pods reach a range of external addresses by gateways; empty if they do not. A range inside the
// network outside has addresses of services only.
func tooWide(p netip.Prefix, g *coe.Gateway) string {
	switch {
	case p.Bits() < minExternalBits:
		return "is too wide"
	case p.Overlaps(g.Address) && p.Bits() <= g.Address.Bits():
		return fmt.Sprintf("has the network outside, %s", g.Address.Masked())
	case p.Contains(g.Address.Addr()), p.Contains(g.NextHop):
		return fmt.Sprintf("has the address of the gateway or of its next hop, %s", g.NextHop)
	}
	return ""
}

// noGateways returns why the model has no gateways; empty if it has.
func (s Settings) noGateways(network netvirt.NodeNetwork) (coe.Reason, string) {
	switch {
	case s.Limits.NoGateways:
		return coe.NotEnforced, "the backend has no gateways; pods leave the network by their own nodes"
	case s.Isolated():
		return coe.NotEnforced, "a gateway serves all namespaces, so there are none with --isolation namespace"
	case !s.ManagementPorts:
		return coe.NotEnforced, "pods do not leave the network, because nodes have no management ports: set --node-network"
	case !network.Prefix.IsValid():
		return coe.Waiting, "no node has a management port yet"
	}
	return "", ""
}

// gateway adds a gateway to the model. One that cannot work keeps its pods inside the network: these leave
// with a certain address, or not at all. An address that a node or a pool has taken since is only a problem: a
// node must not be able to remove the gateway.
func (s Settings) gateway(m netvirt.Model, v coe.ClusterView, network netvirt.NodeNetwork, g *coe.Gateway) (problems []coe.Problem) {
	report := func(reason coe.Reason, format string, args ...any) {
		problems = append(problems, coe.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if reason, message := s.noGateways(network); reason != "" {
		report(reason, "%s", message)
		return problems
	}
	pods, services := only4(v.Networks.Pods), only4(v.Networks.Services)
	for _, p := range only4(s.External.All()) {
		if reason := tooWide(p, g); reason != "" {
			report(coe.AddressInvalid, "%s of --external-addresses %s, so pods that leave by gateways reach it by these, not by their own nodes, and no gateway leads to services there: choose smaller ranges", p, reason)
		}
	}
	o := netvirt.Gateway{
		Node: g.Node, Network: network.Prefix, Transit: network.Transit,
		Pods: netvirt.NewPrefixList(pods...), Pinned: netvirt.NewPrefixList(g.Pinned...),
	}
	if g.PinsUnknown {
		o.Pinned = o.Pods
	}
	if g.Unreadable { // which is a problem of the entry
		m.Add(o)
		return problems
	}
	_, joined := m[netvirt.ManagementPort{Node: g.Node}.Key()]
	var link netip.Prefix
	if joined {
		link, joined = coe.GatewayLink(v.Numbers[g.Node].Number)
		if !joined {
			report(coe.IDsExhausted, "the number of the node is %d, and %s has no link for it: use a node that joined earlier", v.Numbers[g.Node].Number, coe.GatewayLinks)
		}
	} else {
		report(coe.Waiting, "the bridge knows no node with address %s and a management port, so pods that are pinned to the gateway reach nothing outside: correct the address, start the agent of the node, or delete the gateway", g.Node)
	}
	if !joined {
		m.Add(o)
		return problems
	}
	inside := slices.Concat(pods, services, []netip.Prefix{network.Prefix, coe.GatewayLinks})
	o.Chassis, o.Address, o.NextHop, o.Link = g.Chassis, g.Address, g.NextHop, link
	o.Inside = netvirt.NewPrefixList(inside...)
	if o.Services = g.Services; g.Services {
		o.External, o.Nodes = netvirt.NewPrefixList(s.externalAtGateways(v.Gateways)...), joinedNodes(m)
		o.Own, o.SourcePorts = ownAddresses(g.Node, v.Nodes[g.Node]), s.sourcePorts()
	}
	m.Add(o)
	if node := v.Nodes[g.Address.Addr()]; node != nil {
		report(coe.AddressTaken, "%s is also the address of node %s: give the gateway an address of its own in the same network", g.Address.Addr(), node.HostName)
	}
	for _, p := range inside {
		if p.Overlaps(g.Address) {
			report(coe.AddressInvalid, "the network outside, %s, overlaps %s, a range of pods, cluster addresses or nodes in the network", g.Address.Masked(), p)
		}
	}
	for _, p := range g.Pinned {
		if !o.Translates(p) {
			report(coe.AddressInvalid, "the pinned subnet %s is not in a range of pods: %v", p, pods)
		}
	}
	return problems
}

// ownAddresses returns the IPv4 addresses of a node that policies take for the node.
func ownAddresses(addr netip.Addr, n *coe.Node) netvirt.PrefixList {
	var all []netip.Prefix
	for _, a := range policyAddresses(addr, n) {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return netvirt.NewPrefixList(only4(all)...)
}

// sourcePorts returns the most ports in a row outside NodePorts: the answer to a pod must not be a packet to a service.
func (s Settings) sourcePorts() string {
	const first, last = 1024, 65535
	below, above := [2]int{first, int(s.NodePorts.First) - 1}, [2]int{max(first, int(s.NodePorts.Last)+1), last}
	if below[1]-below[0] > above[1]-above[0] {
		above = below
	}
	return fmt.Sprintf("%d-%d", above[0], above[1])
}

// joinedNodes returns the IPv4 addresses of the nodes with management ports.
func joinedNodes(m netvirt.Model) netvirt.PrefixList {
	var all []netip.Prefix
	for _, o := range m {
		if port, ok := o.(netvirt.ManagementPort); ok && port.Node.Is4() {
			all = append(all, netip.PrefixFrom(port.Node, port.Node.BitLen()))
		}
	}
	return netvirt.NewPrefixList(all...)
}

// only4 returns the IPv4 prefixes.
func only4(all []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !p.Addr().Is4() })
}
