package ipam

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/inuse"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// adoption creates the records that the journal has lost, from the objects in the backend: leases,
// numbers of nodes, and records that other records need. The interfaces keep these leases. When
// the store is complete, the leases of interfaces that no longer exist are released.
type adoption struct{ *round }

func (a adoption) run(ctx context.Context, inUse []inuse.Interface, nodes []inuse.Node) error {
	a.freed = a.sweep() || a.freed // the addresses of unused records are free now
	slices.SortFunc(inUse, func(a, b inuse.Interface) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.PodUID, b.PodUID), strings.Compare(a.InterfaceUID, b.InterfaceUID))
	})
	var found []*inuse.Interface
	for n := range inUse {
		u := &inUse[n]
		if !u.Whole() {
			continue
		}
		a.adoptIDs(u)
		if a.leases[u.Key()] == nil && a.contested[u.Key()] == nil {
			found = append(found, u)
		}
	}
	if len(found)+len(nodes) > 0 {
		// If the leases are only partly written, the next run asks the backend again.
		a.adopting = true
		a.write.Put(journal.RankAdopting, journal.AdoptingRecord, true, nil)
	}
	a.restoreBlocks()
	// All blocks are held first, then all addresses. Only then do the addresses without a
	// block get new blocks.
	for _, u := range found {
		a.adoptBlocks(a.elanOf(a.namespace(u.Namespace), u.Node), u.Addresses, u.Shared)
	}
	for _, u := range found {
		a.adoptAddresses(u)
	}
	for _, u := range found {
		a.adoptLease(u)
	}
	a.restoreInstances()
	numbers := a.adoptNodes(nodes)
	if err := a.flush(ctx, false); err != nil {
		return err
	}
	if a.adopting {
		a.orphans = append(a.orphans, journal.AdoptingRecord)
	}
	a.unasked, a.adopting = false, false
	a.known.Store(true)
	if len(found)+numbers > 0 {
		a.log.Info("adopted objects of the backend that had no record", "interfaces", len(found), "leases", len(a.leases), "nodes", numbers)
	}
	return nil
}

// adoptBlocks gives an elan the blocks of its addresses in the backend. shared has the blocks that its node shares, by
// gateway.
func (a adoption) adoptBlocks(e *elan, addresses []coe.LeasedAddress, shared map[netip.Addr]netip.Prefix) {
	for _, x := range addresses {
		if x.Network.IsSingleIP() && a.adoptShared(e, x.Gateway, shared[x.Gateway]) {
			continue
		}
		if !x.Network.Contains(x.Gateway) || x.Network != x.Network.Masked() || a.alloc.Owner(e.Domain, x.Gateway) != "" {
			continue
		}
		a.adoptBlock(e, x.Network, x.Gateway)
	}
}

// adoptBlock gives the elan a block of the pool that contains it. If no pool contains the block
// yet, no further address is taken from it, and no other block can overlap it. If the block
// exists, or overlaps another block, adoptBlock does nothing: addresses without a block are
// claimed later.
func (a adoption) adoptBlock(e *elan, prefix netip.Prefix, gateway netip.Addr) {
	b := dhcppool.Block{ELAN: e.ELAN, Prefix: prefix, Gateway: gateway}
	if prefix.IsSingleIP() {
		_ = a.alloc.RestoreBlock(b)
		return
	}
	for _, network := range e.networks() {
		if p, found := a.alloc.PoolAround(network, prefix); found {
			if b.Network, b.Subnet = network, p.Subnet; a.alloc.RestoreBlock(b) == nil {
				return
			}
		}
	}
	b.Network, b.Subnet = e.Name, prefix
	_ = a.alloc.RestoreBlock(b)
}

// adoptAddresses holds the interface's addresses. An address that is in no block of its elan is
// held without a block until the lease is created.
func (a adoption) adoptAddresses(u *inuse.Interface) {
	e, owner := a.elanOf(a.namespace(u.Namespace), u.Node), journal.LeaseRecord(u.Key())
	for _, x := range u.Addresses {
		if a.cfg.NodeBlocks && x.Gateway.IsValid() {
			e.macs[gatewayMAC(x.Gateway)] = gatewayOwner(x.Gateway) // no interface that is adopted gets it
		}
		inBlock := x.Network.Contains(x.Address) || x.Network.IsValid() && x.Network.IsSingleIP()
		if !inBlock || a.alloc.RestoreAddress(a.behind(owner, e, x)) != nil {
			a.alloc.Hold(e.Domain, x.Address, owner)
		}
	}
}

// adoptLease creates a lease with the addresses that the interface holds.
func (a adoption) adoptLease(u *inuse.Interface) {
	e := a.elanOf(a.namespace(u.Namespace), u.Node)
	var c chosen
	for _, x := range u.Addresses {
		if b, found := a.adoptedBlock(e, u, x.Address); found {
			c.add(e, x.Address, b)
		}
	}
	if len(c.addresses) == 0 {
		return
	}
	if a.identify(e) != nil {
		for _, x := range c.addresses {
			a.alloc.Release(e.Domain, x.Address)
		}
		return
	}
	l := &coe.Lease{
		PodUID: u.PodUID, InterfaceUID: u.InterfaceUID, Seq: a.seq + 1,
		Namespace: u.Namespace, Pod: u.Pod, Primary: u.Primary, Node: u.Node,
		Name: netvirt.InterfaceName(u.Namespace, u.Pod, u.InterfaceUID, u.Primary),
		MAC:  unicastMAC(u.MAC), Addresses: c.addresses, Chosen: a.now.UnixMilli(),
	}
	free := func(mac string) bool { return e.macs.free(mac, "") }
	if l.MAC == "" || !free(l.MAC) {
		l.MAC = freeMAC(l.Addresses[0].Address, free)
	}
	a.putInstances(e)
	a.putBlocks(e, c.newBlocks)
	a.putLease(l)
}

// adoptedBlock returns the block of an address that an interface holds.
func (a adoption) adoptedBlock(e *elan, u *inuse.Interface, addr netip.Addr) (dhcppool.Block, bool) {
	owner := journal.LeaseRecord(u.Key())
	if a.alloc.Owner(e.Domain, addr) != owner {
		return dhcppool.Block{}, false // another interface holds the address
	}
	if b, found := a.alloc.Through(e.Domain, addr); found {
		return b, true
	}
	network, _ := a.alloc.Serving(e.networks()...)
	claim := dhcppool.Claim{ELAN: e.ELAN, Holder: a.blockHolder(e, network, addr), Network: network, Address: addr, Owner: owner}
	if n := a.store.Nodes()[u.Node]; n != nil {
		claim.NodeNet = n.PodCIDR(addr)
	}
	b, err := a.alloc.Claim(claim)
	if err != nil {
		a.alloc.Release(e.Domain, addr)
	}
	return b, err == nil
}
