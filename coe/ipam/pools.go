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

// SetPools replaces the pools, which must be valid (dhcppool.Validate). Leases
// keep their addresses; what is chosen from now on follows the new pools. It
// returns the namespaces to Sync, sorted: those for which something may be
// chosen now, and those whose blocks have other DNS servers. It costs what the
// pools that are others than before cost, and their blocks.
//
// It must be called again when the store's nodes change: services cannot have
// their addresses.
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
		// A service with external addresses does well without one of the pool and
		// was not refused.
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
		for b := range a.otherDNS(network) {
			marked[b.namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(marked))
}

// PoolsAreWhole notes that the pools that were set last are complete, because every source is.
func (a *Assigner) PoolsAreWhole() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.poolsWhole = true
}

// otherDNS are the blocks of a network that have other DNS servers than its pools.
func (a *Assigner) otherDNS(network string) iter.Seq[blockFact] {
	return func(yield func(blockFact) bool) {
		for _, b := range a.alloc.Blocks(network) {
			fact, found := a.blocks[blockKey{b.ELAN.Name, b.Prefix}]
			if found && !slices.Equal(a.dns(fact.Block), fact.DNS) && !yield(fact) {
				return
			}
		}
	}
}

// dns are the DNS servers of a block: its pool's, or while that is gone those
// that it had.
func (a *Assigner) dns(b *coe.Block) []netip.Addr {
	p, found := a.alloc.Pool(b.Network, b.Subnet)
	if !found {
		return b.DNS
	}
	return p.DNS
}

// networks are the network-ids of the pools that may serve the elan; the first
// that has one does. The pool "default" is the last resort, for the namespace of
// that name too.
func (e *elan) networks() []string { return NetworksOf(e.Name, e.namespace.name, e.node) }

// NetworksOf are the network-ids of the pools that may serve the pods of a namespace on a
// node, whose elan-instance is named elan. The first that has a pool serves. The pool of
// services serves no pods, whatever the name of their namespace.
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
