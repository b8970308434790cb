// Package gateway maps the gateways that clients have configured: the object of each, the ranges that pods reach by gateways or by their
// own nodes, and why one does not work. It is pure. It does not know how nodes, services and policies are mapped.
package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Cluster is what gateways are mapped from.
type Cluster struct {
	coe.ClusterView
	// Network is the network of the nodes.
	Network netvirt.NodeNetwork
	// Joined are the addresses of the nodes with management ports. Own has the addresses that policies take for such a node, for the
	// nodes of gateways.
	Joined []netip.Prefix
	Own    map[netip.Addr][]netip.Prefix
	// External are the ranges of external addresses of services.
	External []netip.Prefix
	// NodePorts are the ports on which nodes answer for services.
	NodePorts coe.PortRange
}

// linkLocal has addresses that mean another machine, or a program, on each node.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// Map maps a gateway, and returns its problems. One that cannot work keeps its pods inside the network: these leave with a certain
// address, or not at all.
func Map(c Cluster, g *coe.Gateway) (netvirt.Gateway, []coe.Problem) {
	network := c.Network
	led := func(all []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
			return !g.Leads(p.Addr()) || p.Addr().Is6() && !network.PrefixIPv6.IsValid()
		})
	}
	o := netvirt.Gateway{
		Node: g.Node, Network: network.Prefix, Transit: network.Transit,
		Pods: netvirt.NewPrefixList(led(c.Networks.Pods)...), Pinned: netvirt.NewPrefixList(led(g.Pinned)...),
	}
	if g.PinsUnknown {
		o.Pinned = o.Pods
	}
	problems := c.rangesOf(g)
	if g.Unreadable { // which is a problem of the entry
		return o, problems
	}
	number, problem := c.number(g)
	if problem != nil {
		return o, append(problems, *problem)
	}
	inside := slices.Concat(led(c.Networks.Pods), led(c.Networks.Services), []netip.Prefix{network.Prefix, nodenet.GatewayLinks})
	o.Chassis, o.Address, o.NextHop = g.Chassis, g.Address, g.NextHop
	o.Link, _ = nodenet.GatewayLink(nodenet.GatewayLinks, number)
	if g.IPv6.Address.IsValid() && network.PrefixIPv6.IsValid() {
		inside = append(inside, network.PrefixIPv6, nodenet.GatewayLinksIPv6)
		o.IPv6 = netvirt.GatewayFamily{Address: g.IPv6.Address, NextHop: g.IPv6.NextHop}
		o.IPv6.Link, _ = nodenet.GatewayLink(nodenet.GatewayLinksIPv6, number)
	}
	o.Inside = netvirt.NewPrefixList(inside...)
	if o.Services = g.Services; g.Services {
		o.External = netvirt.NewPrefixList(led(External(c.External, c.Gateways))...)
		o.Nodes = netvirt.NewPrefixList(led(c.Joined)...)
		own := slices.DeleteFunc(led(c.Own[g.Node]), func(p netip.Prefix) bool {
			return slices.ContainsFunc(inside, func(in netip.Prefix) bool { return in.Overlaps(p) })
		})
		o.Own = netvirt.NewPrefixList(own...)
		o.SourcePorts = sourcePorts(c.NodePorts)
	}
	return o, append(problems, c.addressesOf(o)...)
}

// rangesOf returns the problems of a gateway with the ranges of the settings.
func (c Cluster) rangesOf(g *coe.Gateway) (problems []coe.Problem) {
	if g.IPv6.Address.IsValid() && !c.Network.PrefixIPv6.IsValid() {
		problems = append(problems, coe.Problem{
			Reason: coe.NotEnforced, Message: "pods do not leave by IPv6, because nodes have no IPv6 addresses in the network: set an IPv6 prefix in --node-network",
		})
	}
	for _, p := range c.External {
		if reason := tooWide(p, g); reason != "" {
			problems = append(problems, coe.Problem{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
				"%s of --external-addresses %s, so pods that leave by gateways reach it by these, not by their own nodes, and no gateway leads to services there: choose smaller ranges", p, reason)})
		}
	}
	return problems
}

// number returns the number of the node of a gateway, for which there are links, or why there is none.
func (c Cluster) number(g *coe.Gateway) (uint32, *coe.Problem) {
	if _, joined := c.Own[g.Node]; !joined {
		return 0, &coe.Problem{Reason: coe.Waiting, Message: fmt.Sprintf(
			"the bridge knows no node with address %s and a management port, so pods that are pinned to the gateway reach nothing outside: correct the address, start the agent of the node, or delete the gateway", g.Node)}
	}
	number := c.Numbers[g.Node].Number
	if _, ok := nodenet.GatewayLink(nodenet.GatewayLinks, number); !ok { // nor of IPv6: both ranges have as many
		return 0, &coe.Problem{Reason: coe.IDsExhausted, Message: fmt.Sprintf(
			"the number of the node is %d, and %s has no link for it: use a node that joined earlier", number, nodenet.GatewayLinks)}
	}
	return number, nil
}

// addressesOf returns the problems of the addresses of a gateway that works. An address that a node, an EgressIP or a
// pool has taken since is only a problem: a node must not be able to remove the gateway.
func (c Cluster) addressesOf(o netvirt.Gateway) (problems []coe.Problem) {
	report := func(reason coe.Reason, format string, args ...any) {
		problems = append(problems, coe.Problem{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	for _, outside := range o.Families() {
		if node := c.nodeWith(outside.Address.Addr()); node != nil {
			report(coe.AddressTaken, "%s is also the address of node %s: give the gateway an address of its own in the same network", outside.Address.Addr(), node.HostName)
		}
		for _, e := range c.EgressIPs {
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
func (c Cluster) nodeWith(a netip.Addr) *coe.Node {
	for addr, n := range c.Nodes {
		if addr == a || n.SecondIP == a {
			return n
		}
	}
	return nil
}

// sourcePorts returns the most ports in a row outside the node ports: the answer to a pod must not be a packet to a service.
func sourcePorts(nodePorts coe.PortRange) string {
	const first, last = 1024, 65535
	below, above := [2]int{first, int(nodePorts.First) - 1}, [2]int{max(first, int(nodePorts.Last)+1), last}
	if below[1]-below[0] > above[1]-above[0] {
		above = below
	}
	return fmt.Sprintf("%d-%d", above[0], above[1])
}
