package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
)

// adoptNodes gives nodes the numbers of their management ports' addresses, and returns how
// many. It skips ports of another node network, and ports with the address of another port.
func (a adoption) adoptNodes(inUse []NodeInUse) (adopted int) {
	slices.SortFunc(inUse, func(x, y NodeInUse) int { return x.Node.Compare(y.Node) })
	for _, u := range inUse {
		number := a.cfg.Nodes.Network.Number(u.Address)
		fact := coe.NodeFact{Node: u.Node}
		if old := a.numbers[u.Node]; old != nil {
			fact = *old
		}
		if number == 0 || a.nodeIDs.Restore(u.Node.String(), number) != nil || fact.Number != 0 {
			continue
		}
		fact.Number = number
		a.putNode(&fact)
		adopted++
	}
	return adopted
}

// followNetworks records the networks that nodes route, and the gateways, if they have changed. Until all pools
// and ServiceCIDRs are known it removes no range, because pods and services may have addresses in it, and keeps the gateways.
func (r *round) followNetworks() {
	now := r.allNetworks()
	if r.networks != nil && !r.poolsWhole {
		now.Pods = joined(slices.Concat(now.Pods, r.networks.Pods))
		now.Gateways = r.networks.Gateways
	}
	if r.networks != nil && (!r.poolsWhole || r.serviceCIDRs.partial) {
		now.Services = joined(slices.Concat(now.Services, r.networks.Services))
	}
	if r.networks != nil && r.networks.Equal(now) {
		return
	}
	r.networks = now
	r.write.Put(journal.RankInstance, journal.NetworksRecord, now, func(tx *coe.Tx) { tx.SetNetworks(now) })
}

// noteReach logs a warning, once, if a service has an address that is in no range that nodes
// route.
func (r *round) noteReach(service netip.Addr) {
	network := r.cfg.Nodes.Network
	if service.Is6() {
		network = r.cfg.Nodes.NetworkIPv6
	}
	if r.warned || !network.IsValid() {
		return
	}
	if r.ranges == nil {
		r.ranges = r.allNetworks().Services
	}
	if !slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(service) }) {
		r.warned = true
		r.log.Warn("nodes cannot reach a service by its cluster address: name the range of such addresses with --service-network", "address", service)
	}
}

// allNetworks returns the ranges of the settings, of all pools and of ServiceCIDRs, as the fewest prefixes. If
// nodes route the addresses of pods singly, the addresses of nodes are not among them.
func (r *round) allNetworks() *coe.Networks {
	pods, services := slices.Clone(r.cfg.Nodes.Pods), slices.Concat(r.cfg.Nodes.Services, r.serviceCIDRs.ranges)
	for _, p := range r.pools {
		if p.Network == coe.ServicePool {
			services = append(services, p.Subnet)
		} else {
			pods = append(pods, p.Subnet)
		}
	}
	var nodes []netip.Addr
	if r.cfg.Nodes.Ports {
		nodes = slices.Collect(maps.Keys(r.seen.addresses))
	}
	n := &coe.Networks{
		Nodes: r.cfg.Nodes.Network, NodesIPv6: r.cfg.Nodes.NetworkIPv6, Isolated: r.cfg.Nodes.Ports, NodesBalance: r.cfg.Nodes.Balance, Pods: joined(pods, nodes...), Services: joined(services),
		Gateways: r.gateways(), HostPorts: r.cfg.Nodes.ServedHostPorts(),
	}
	if keep := r.cfg.Nodes.NoMasquerade; len(keep) > 0 {
		n.NoMasquerade = joined(keep)
	}
	return n
}

// gateways returns what nodes need to know of the gateways.
func (r *round) gateways() (all []coe.NetworkGateway) {
	if !r.cfg.Nodes.ManagementPorts() {
		return nil
	}
	for _, g := range r.store.Gateways() {
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

// joined returns the fewest prefixes with the same addresses, less some addresses, sorted.
func joined(prefixes []netip.Prefix, less ...netip.Addr) []netip.Prefix {
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

func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}
