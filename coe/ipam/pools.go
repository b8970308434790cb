package ipam

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// SetPools replaces the pools, which must be valid (dhcppool.Validate). Leases keep their
// addresses; later choices follow the new pools. It returns the namespaces to Sync, sorted: the
// namespaces for which more may be chosen now, and the namespaces whose blocks have other DHCP
// settings. Its cost depends only on the pools that have changed, and on their blocks.
//
// SetPools must be called again when the store's nodes change, because services cannot have the
// addresses of nodes.
func (a *Assigner) SetPools(pools []dhcppool.Pool) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools, a.seen = slices.Clone(pools), nil
	_, served := a.alloc.Serving(coe.ServicePool)
	changed := a.alloc.SetPools(a.pools)
	marked := map[string]bool{}
	for _, ns := range a.reserveAgain() {
		marked[ns] = true
	}
	if len(changed) == 0 {
		return slices.Sorted(maps.Keys(marked))
	}
	if _, serves := a.alloc.Serving(coe.ServicePool); serves && !served {
		// A service with external addresses needs no address of the pool, so it was not
		// refused and is not waiting.
		for _, ns := range a.store.Namespaces() {
			marked[ns] = true
		}
	}
	for ns, r := range a.waiting {
		if r.any(healedByPools) {
			marked[ns] = true
		}
	}
	for _, network := range changed {
		a.repooled[network] = true
		for b := range a.otherDHCP(network) {
			marked[b.namespace] = true
			a.unsettle(b)
		}
	}
	return slices.Sorted(maps.Keys(marked))
}

// SetServiceRanges replaces the ranges of cluster addresses that are neither in the settings nor pools; see
// ServiceRanges. whole says that there are no others. SetPools, which must follow, applies them.
func (a *Assigner) SetServiceRanges(ranges []netip.Prefix, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serviceCIDRs.ranges, a.serviceCIDRs.partial = ranges, !whole
}

// PoolsAreWhole notes that every source has been listed, so that the present pools are all pools.
func (a *Assigner) PoolsAreWhole() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.poolsWhole = true
}

// otherDHCP returns the blocks of a network that have other DHCP settings than their pools.
func (a *Assigner) otherDHCP(network string) iter.Seq[blockFact] {
	return func(yield func(blockFact) bool) {
		for _, b := range a.alloc.Blocks(network) {
			for fact := range a.factsOf(b) {
				if want := a.withDHCP(*fact.Block); (want.DHCP != fact.DHCP || !slices.Equal(want.DNS, fact.DNS)) && !yield(fact) {
					return
				}
			}
		}
	}
}

// unsettle unsettles the pods with an address in a block: their leases have its DHCP settings.
func (a *Assigner) unsettle(b blockFact) {
	ns := a.namespace(b.namespace)
	for uid, p := range ns.pods {
		if slices.ContainsFunc(p.leases, func(l *coe.Lease) bool {
			return slices.ContainsFunc(l.Addresses, func(x coe.LeasedAddress) bool { return x.Network == b.Prefix })
		}) {
			ns.unsettled[uid] = true
		}
	}
}

// withDHCP returns a block with the DHCP settings of its pool: its DNS servers, and whether it asks for DHCP. If the pool
// is deleted, the block keeps its present ones.
func (a *Assigner) withDHCP(b coe.Block) *coe.Block {
	if p, found := a.alloc.Pool(b.Network, b.Subnet); found {
		b.DNS, b.DHCP = p.DNS, p.DHCP
	}
	return &b
}

// networks returns the network-ids of the pools that may serve the elan; see NetworksOf.
func (e *elan) networks() []string { return NetworksOf(e.Name, e.namespace.name, e.node) }

// NetworksOf returns the network-ids of the pools that may serve the pods of a namespace on a
// node, whose elan-instance is named elan. The first network-id that has a pool serves. The last
// one is "default", also for the namespace with that name. The pool of services never serves
// pods, even if their namespace has its name.
func NetworksOf(elan, namespace string, node netip.Addr) []string {
	names := []string{elan}
	if namespace != dhcppool.DefaultNetwork && namespace != coe.ServicePool {
		names = append(names, namespace)
	}
	return append(names, node.String(), dhcppool.DefaultNetwork)
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// exhausted refuses an address because the pools of a network have none left. It names the
// networks that would serve the elan instead.
func (e *elan) exhausted(network string, err error) *coe.Refusal {
	message := err.Error()
	networks := e.networks()
	if before := networks[:slices.Index(networks, network)]; len(before) > 0 {
		message += ", or a dhcp_allocation_pool with network-id " + quoted(before)
	}
	return &coe.Refusal{Reason: coe.PoolExhausted, Message: message}
}
