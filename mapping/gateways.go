package mapping

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// linkLocal has addresses that mean another machine, or a program, on each node.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// gateways maps the gateways, and returns their problems.
func (s Settings) gateways(m netvirt.Model, v coe.ClusterView, nodes *mappedNodes) (problems []coe.Problem) {
	if len(v.Gateways) == 0 {
		return nil
	}
	var network netvirt.NodeNetwork
	for _, o := range m.Select(netvirt.NewKindSet(netvirt.KindNodeNetwork)) { // there is one at most
		network, _ = o.(netvirt.NodeNetwork)
	}
	if network.Prefix.IsValid() && s.servesGateways() {
		network.OnNode, network.GatewayLinks = netvirt.NewPrefixList(s.onNode(v.Gateways)...), gatewayLinks(network, v.Gateways)
		m.Add(network)
	}
	for _, g := range v.Gateways {
		name := ""
		if n := v.Nodes[g.Node]; n != nil {
			name = n.HostName
		}
		for _, p := range s.gateway(m, v, nodes, network, g) {
			p.Kind, p.UID, p.Name = "gateway", g.Node.String(), name
			problems = append(problems, p)
		}
	}
	return problems
}

// gatewayLinks returns the ranges from which gateways lead clients to services.
func gatewayLinks(network netvirt.NodeNetwork, gateways []*coe.Gateway) netvirt.PrefixList {
	if !slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return g.Services }) {
		return ""
	}
	all := []netip.Prefix{nodenet.GatewayLinks}
	if network.PrefixIPv6.IsValid() {
		all = append(all, nodenet.GatewayLinksIPv6)
	}
	return netvirt.NewPrefixList(all...)
}

// servesGateways reports whether the model has gateways if there are some.
func (s Settings) servesGateways() bool {
	return !s.Limits.NoGateways && !s.Isolated() && !s.Separates() && s.ManagementPorts
}

// onNode returns the ranges outside that pods reach by their own nodes although they leave by gateways.
func (s Settings) onNode(gateways []*coe.Gateway) []netip.Prefix {
	return append(s.externalAtGateways(gateways), linkLocal)
}

// externalAtGateways returns the ranges of external addresses that have services only, of the families with which pods
// leave by gateways.
func (s Settings) externalAtGateways(gateways []*coe.Gateway) []netip.Prefix {
	return slices.DeleteFunc(s.External.All(), func(p netip.Prefix) bool {
		led := slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return g.Leads(p.Addr()) })
		return !led || slices.ContainsFunc(gateways, func(g *coe.Gateway) bool { return tooWide(p, g) != "" })
	})
}

// tooWide returns why pods reach a range of external addresses by a gateway; empty if they do not. A range inside the
// network outside has addresses of services only. A few ranges that are shorter than a quarter of an address have every
// address, and no packet would leave by a gateway.
func tooWide(p netip.Prefix, g *coe.Gateway) string {
	outside := g.In(p.Addr())
	switch {
	case !g.Leads(p.Addr()):
		return ""
	case p.Bits() < p.Addr().BitLen()/4:
		return "is too wide"
	case p.Overlaps(outside.Address) && p.Bits() <= outside.Address.Bits():
		return fmt.Sprintf("has the network outside, %s", outside.Address.Masked())
	case p.Contains(outside.Address.Addr()), p.Contains(outside.NextHop):
		return fmt.Sprintf("has the address of the gateway or of its next hop, %s", outside.NextHop)
	}
	return ""
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

// gateway adds a gateway to the model. One that cannot work keeps its pods inside the network: these leave
// with a certain address, or not at all.
func (s Settings) gateway(m netvirt.Model, v coe.ClusterView, nodes *mappedNodes, network netvirt.NodeNetwork, g *coe.Gateway) []coe.Problem {
	if reason, message := s.noGateways(network); reason != "" {
		return []coe.Problem{{Reason: reason, Message: message}}
	}
	led := func(all []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
			return !g.Leads(p.Addr()) || p.Addr().Is6() && !network.PrefixIPv6.IsValid()
		})
	}
	o := netvirt.Gateway{
		Node: g.Node, Network: network.Prefix, Transit: network.Transit,
		Pods: netvirt.NewPrefixList(led(v.Networks.Pods)...), Pinned: netvirt.NewPrefixList(led(g.Pinned)...),
	}
	if g.PinsUnknown {
		o.Pinned = o.Pods
	}
	problems := s.gatewayRanges(network, g)
	if g.Unreadable { // which is a problem of the entry
		m.Add(o)
		return problems
	}
	number, problem := gatewayNumber(v, nodes, g)
	if problem != nil {
		m.Add(o)
		return append(problems, *problem)
	}
	inside := slices.Concat(led(v.Networks.Pods), led(v.Networks.Services), []netip.Prefix{network.Prefix, nodenet.GatewayLinks})
	o.Chassis, o.Address, o.NextHop = g.Chassis, g.Address, g.NextHop
	o.Link, _ = nodenet.GatewayLink(nodenet.GatewayLinks, number)
	if g.IPv6.Address.IsValid() && network.PrefixIPv6.IsValid() {
		inside = append(inside, network.PrefixIPv6, nodenet.GatewayLinksIPv6)
		o.IPv6 = netvirt.GatewayFamily{Address: g.IPv6.Address, NextHop: g.IPv6.NextHop}
		o.IPv6.Link, _ = nodenet.GatewayLink(nodenet.GatewayLinksIPv6, number)
	}
	o.Inside = netvirt.NewPrefixList(inside...)
	if o.Services = g.Services; g.Services {
		o.External = netvirt.NewPrefixList(led(s.externalAtGateways(v.Gateways))...)
		o.Nodes = netvirt.NewPrefixList(led(nodes.joined())...)
		own := slices.DeleteFunc(led(single(nodes.addresses(g.Node, v.Nodes[g.Node])...)), func(p netip.Prefix) bool {
			return slices.ContainsFunc(inside, func(in netip.Prefix) bool { return in.Overlaps(p) })
		})
		o.Own = netvirt.NewPrefixList(own...)
		o.SourcePorts = s.sourcePorts()
	}
	m.Add(o)
	return append(problems, gatewayAddresses(v, o)...)
}

// gatewayRanges returns the problems of a gateway with the ranges of the settings.
func (s Settings) gatewayRanges(network netvirt.NodeNetwork, g *coe.Gateway) (problems []coe.Problem) {
	if g.IPv6.Address.IsValid() && !network.PrefixIPv6.IsValid() {
		problems = append(problems, coe.Problem{
			Reason: coe.NotEnforced, Message: "pods do not leave by IPv6, because nodes have no IPv6 addresses in the network: set an IPv6 prefix in --node-network",
		})
	}
	for _, p := range s.External.All() {
		if reason := tooWide(p, g); reason != "" {
			problems = append(problems, coe.Problem{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
				"%s of --external-addresses %s, so pods that leave by gateways reach it by these, not by their own nodes, and no gateway leads to services there: choose smaller ranges", p, reason)})
		}
	}
	return problems
}

// gatewayNumber returns the number of the node of a gateway, for which there are links, or why there is none.
func gatewayNumber(v coe.ClusterView, nodes *mappedNodes, g *coe.Gateway) (uint32, *coe.Problem) {
	if _, joined := nodes.port(g.Node); !joined {
		return 0, &coe.Problem{Reason: coe.Waiting, Message: fmt.Sprintf(
			"the bridge knows no node with address %s and a management port, so pods that are pinned to the gateway reach nothing outside: correct the address, start the agent of the node, or delete the gateway", g.Node)}
	}
	number := v.Numbers[g.Node].Number
	if _, ok := nodenet.GatewayLink(nodenet.GatewayLinks, number); !ok { // nor of IPv6: both ranges have as many
		return 0, &coe.Problem{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"the number of the node is %d, and %s has no link for it: use a node that joined earlier", number, nodenet.GatewayLinks)}
	}
	return number, nil
}

// gatewayAddresses returns the problems of the addresses of a gateway that works. An address that a node, an EgressIP or a
// pool has taken since is only a problem: a node must not be able to remove the gateway.
func gatewayAddresses(v coe.ClusterView, o netvirt.Gateway) (problems []coe.Problem) {
	report := func(reason coe.Reason, format string, args ...any) {
		problems = append(problems, coe.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	for _, outside := range o.Families() {
		if node := nodeWith(v, outside.Address.Addr()); node != nil {
			report(coe.AddressTaken, "%s is also the address of node %s: give the gateway an address of its own in the same network", outside.Address.Addr(), node.HostName)
		}
		for _, e := range v.EgressIPs {
			switch e.Address {
			case outside.Address.Addr():
				report(coe.AddressTaken, "%s is also the address of egressip %s: give one of them another address", e.Address, e.Name)
			case outside.NextHop:
				report(coe.AddressTaken, "the next hop %s is also the address of egressip %s: give the egressip another address", e.Address, e.Name)
			}
		}
		for _, p := range o.Inside.All() {
			if p.Overlaps(outside.Address) {
				report(coe.AddressInvalid, "the network outside, %s, overlaps %s, a range of pods, cluster addresses or nodes in the network", outside.Address.Masked(), p)
			}
		}
	}
	for _, p := range o.Pinned.All() {
		if !o.Translates(p) {
			report(coe.AddressInvalid, "the pinned subnet %s is not in a range of pods: %s", p, strings.ReplaceAll(string(o.Pods), ",", ", "))
		}
	}
	return problems
}

// nodeWith returns the node that has an internal address; nil if none has.
func nodeWith(v coe.ClusterView, a netip.Addr) *coe.Node {
	for addr, n := range v.Nodes {
		if addr == a || n.SecondIP == a {
			return n
		}
	}
	return nil
}

// single returns addresses as prefixes.
func single(all ...netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return prefixes
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

// joined returns the addresses of the nodes with management ports.
func (m *mappedNodes) joined() (all []netip.Prefix) {
	for node := range m.nodes {
		port, has := m.port(node)
		if !has {
			continue
		}
		all = append(all, single(node)...)
		if port.Second.IsValid() {
			all = append(all, single(port.Second)...)
		}
	}
	return all
}
