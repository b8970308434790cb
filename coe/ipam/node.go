package ipam

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// adoptNodes gives nodes the numbers of their management ports' addresses, and returns how
// many. It skips ports of another node network, and ports with the address of another port.
func (a adoption) adoptNodes(inUse []inuse.Node) (adopted int) {
	slices.SortFunc(inUse, func(x, y inuse.Node) int { return x.Node.Compare(y.Node) })
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
		now.Pods = ranges.Joined(slices.Concat(now.Pods, r.networks.Pods))
		now.Gateways = r.networks.Gateways
	}
	if r.networks != nil && (!r.poolsWhole || r.serviceCIDRs.partial) {
		now.Services = ranges.Joined(slices.Concat(now.Services, r.networks.Services))
	}
	if r.networks != nil && r.networks.Equal(now) {
		return
	}
	r.networks = now
	r.write.Put(journal.RankInstance, journal.NetworksRecord, now, func(tx *state.Tx) { tx.SetNetworks(now) })
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

// allNetworks returns the networks of now.
func (r *round) allNetworks() *coe.Networks {
	return r.cfg.Nodes.Networks(r.pools, r.serviceCIDRs.ranges, r.seen.addresses, r.store.Gateways())
}

func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}
