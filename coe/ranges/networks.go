package ranges

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// Networks returns what nodes route: the ranges of the settings and of pools, and further ranges of services, as the fewest prefixes, and the
// gateways. If nodes route the addresses of pods singly, the addresses of nodes are not among them.
func (c NodesConfig) Networks(pools []dhcppool.Pool, further []netip.Prefix, nodes map[netip.Addr]*coe.Node, gateways []*coe.Gateway) *coe.Networks {
	pods, services := slices.Clone(c.Pods), slices.Concat(c.Services, further)
	for _, p := range pools {
		if p.Network == coe.ServicePool {
			services = append(services, p.Subnet)
		} else {
			pods = append(pods, p.Subnet)
		}
	}
	var less []netip.Addr
	if c.Ports {
		less = slices.Collect(maps.Keys(nodes))
	}
	n := &coe.Networks{
		Nodes: c.Network, NodesIPv6: c.NetworkIPv6, Isolated: c.Ports, NodesBalance: c.Balance,
		Pods: Joined(pods, less...), Services: Joined(services), HostPorts: c.ServedHostPorts(),
	}
	if c.ManagementPorts() {
		n.Gateways = networkGateways(gateways)
	}
	if len(c.NoMasquerade) > 0 {
		n.NoMasquerade = Joined(c.NoMasquerade)
	}
	return n
}

// networkGateways returns what nodes need to know of gateways.
func networkGateways(gateways []*coe.Gateway) (all []coe.NetworkGateway) {
	for _, g := range gateways {
		one := coe.NetworkGateway{Node: g.Node, Pinned: g.Pinned, IPv6: g.Leads(netip.IPv6Unspecified()), Services: g.Services}
		if g.PinsUnknown { // of all pods
			one.Pinned = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
			if one.IPv6 {
				one.Pinned = append(one.Pinned, netip.PrefixFrom(netip.IPv6Unspecified(), 0))
			}
		}
		all = append(all, one)
	}
	return all
}

// Joined returns the fewest prefixes with the same addresses, less some addresses, sorted.
func Joined(prefixes []netip.Prefix, less ...netip.Addr) []netip.Prefix {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	for _, a := range less {
		b.Remove(a)
	}
	set, err := b.IPSet()
	if err != nil {
		return nil // no prefix was valid
	}
	return set.Prefixes()
}
