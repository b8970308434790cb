package ipam

import (
	"fmt"
	"iter"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// With Config.NodeBlocks a node gets blocks instead of each of its elans, except the elans of a namespace with a physical network,
// which have gateways of their own. The other elans see only the gateway of such a block,
// and their pods are behind it one by one. So every elan can keep its pods when NodeBlocks is not set any more: no two
// elans ever have one network.
//
//	pool of                            | blocks for
//	the elan-instance                  | the elan, whole
//	a namespace with a physical        |
//	network, and "default" for it      | the elan, doubling
//	the node, also its pod-cidr        | the node, whole
//	a namespace, "default"             | the node, doubling

// newHolder returns the holder of new blocks for the pods of an elan from the pools of a network.
func (a *Assigner) newHolder(e *elan, network string) dhcppool.ELAN {
	attached := a.cfg.Nodes.Physical.ForNamespace(e.namespace.name) != nil && network != e.node.String()
	if !a.cfg.NodeBlocks || network == e.Name || attached {
		return e.ELAN
	}
	return e.nodeHolder()
}

// blockHolder returns the holder of the block around a requested address for the pods of an elan: the one that has it, or gets
// it.
func (a *Assigner) blockHolder(e *elan, network string, addr netip.Addr) dhcppool.ELAN {
	if b, found := a.alloc.Around(e.Domain, addr); found && (b.ELAN == e.ELAN || b.ELAN == e.nodeHolder()) {
		return b.ELAN
	}
	return a.newHolder(e, network)
}

// nodeHolder returns the holder of the blocks that the elans of the node share.
func (e *elan) nodeHolder() dhcppool.ELAN {
	return dhcppool.ELAN{Name: dhcppool.OfNode + e.node.String(), Domain: e.Domain, Own: e.node.String()}
}

// network returns the part of a block that the elan sees.
func (e *elan) network(b dhcppool.Block) netip.Prefix {
	if b.ELAN == e.ELAN {
		return b.Prefix
	}
	return host(b.Gateway)
}

// behind returns an address of an elan with its owner and the block through which it is reached.
func (a *Assigner) behind(record string, e *elan, x coe.LeasedAddress) dhcppool.Held {
	h := dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: record, ELAN: e.Name, Prefix: x.Network}
	if b, found := a.blocks[blockKey{e.Name, x.Network}]; found && b.Shared.IsValid() {
		h.ELAN, h.Prefix = e.nodeHolder().Name, b.Shared
	}
	return h
}

// restoreBlock restores a recorded block of an elan. A shared block has a record for each elan.
func (a *Assigner) restoreBlock(e *elan, b *coe.Block) error {
	if !b.Shared.IsValid() {
		return a.alloc.RestoreBlock(dhcppool.Block{ELAN: e.ELAN, Prefix: b.Prefix, Gateway: b.Gateway, Network: b.Network, Subnet: b.Subnet})
	}
	return a.restoreShared(dhcppool.Block{ELAN: e.nodeHolder(), Prefix: b.Shared, Gateway: b.Gateway, Network: b.Network, Subnet: b.Subnet})
}

// restoreShared restores a block of a node, unless it exists.
func (a *Assigner) restoreShared(b dhcppool.Block) error {
	had, found := a.alloc.Around(b.ELAN.Domain, b.Gateway)
	switch {
	case !found || had.ELAN != b.ELAN || had.Prefix != b.Prefix:
		return a.alloc.RestoreBlock(b)
	case had.Gateway != b.Gateway:
		return fmt.Errorf("block %s of node %s has gateway %s", b.Prefix, b.ELAN.Name, had.Gateway)
	}
	return nil
}

// adoptShared gives an elan the block of its node with a gateway. prefix is the block in the backend; it is zero if the
// backend has none. It reports whether there is such a block.
func (a adoption) adoptShared(e *elan, gateway netip.Addr, prefix netip.Prefix) bool {
	if prefix.IsValid() && a.alloc.Owner(e.Domain, gateway) == "" {
		b := dhcppool.Block{ELAN: e.nodeHolder(), Prefix: prefix, Gateway: gateway, Network: e.Name, Subnet: prefix}
		for _, network := range e.networks() {
			if p, found := a.alloc.PoolAround(network, prefix); found {
				b.Network, b.Subnet = network, p.Subnet
				break
			}
		}
		_ = a.restoreShared(b) // if it overlaps another block, the addresses are claimed singly
	}
	b, found := a.alloc.Around(e.Domain, gateway)
	if !found || b.ELAN != e.nodeHolder() || b.Gateway != gateway {
		return false
	}
	a.putBlocks(e, []dhcppool.Block{b})
	a.unused[blockKey{e.Name, host(gateway)}] = e // unless a lease is adopted
	return true
}

// factsOf returns the records of a block.
func (a *Assigner) factsOf(b dhcppool.Block) iter.Seq[blockFact] {
	return func(yield func(blockFact) bool) {
		if fact, found := a.blocks[blockKey{b.ELAN.Name, b.Prefix}]; found && !yield(fact) {
			return
		}
		node, err := netip.ParseAddr(b.ELAN.Own)
		if err != nil {
			return
		}
		for e := range a.elansOn[node] {
			if fact, found := a.blocks[blockKey{e.Name, host(b.Gateway)}]; found && fact.Shared == b.Prefix && !yield(fact) {
				return
			}
		}
	}
}

// host returns the prefix with one address.
func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
