package ipam

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// InUse is one interface that the backend has, as the rows of ours say.
type InUse struct {
	PodUID       string
	InterfaceUID string
	Namespace    string
	Pod          string
	Primary      bool
	Node         netip.Addr
	MAC          string
	// Addresses are at most one of a family. Network and Gateway are zero where the
	// backend does not say.
	Addresses []coe.LeasedAddress
	// VNI is the VNI of its elan-instance, VPN the name of its vpn-instance and RD the
	// number of that one's route distinguisher; zero where the backend does not say.
	VNI uint32
	VPN string
	RD  uint32
}

func (u *InUse) key() coe.LeaseKey {
	return coe.LeaseKey{PodUID: u.PodUID, InterfaceUID: u.InterfaceUID}
}

// whole reports whether the interface is complete enough for a lease. The backend may have
// a part of an interface that was being attached or detached.
func (u *InUse) whole() bool {
	return u.PodUID != "" && u.InterfaceUID != "" && u.Namespace != "" && u.Pod != "" &&
		u.Node.IsValid() && len(u.Addresses) > 0
}

// NodeInUse is one management port that the backend has.
type NodeInUse struct {
	Node    netip.Addr // the address of the node that is plugged into it
	Address netip.Addr // the node's own in the node network
}

// adopt makes leases of what the backend has and the journal lacks, as if it had never
// been lost: their interfaces keep them, and those whose interface is not there are
// released when the store is complete. So it is with nodes and their numbers, and
// with what other records lack.
func (r *round) adopt(ctx context.Context, inUse []InUse, nodes []NodeInUse) error {
	r.freed = r.sweep() || r.freed // what nothing uses in the journal may be used now
	slices.SortFunc(inUse, func(a, b InUse) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.PodUID, b.PodUID), strings.Compare(a.InterfaceUID, b.InterfaceUID))
	})
	var found []*InUse
	for n := range inUse {
		u := &inUse[n]
		if !u.whole() {
			continue
		}
		r.adoptIDs(u)
		if r.leases[u.key()] == nil && r.contested[u.key()] == nil {
			found = append(found, u)
		}
	}
	if len(found)+len(nodes) > 0 {
		// If writing the leases is interrupted, the next run asks again.
		r.adopting = true
		r.write.put(rankAdopting, adoptingRecord, true, nil)
	}
	r.restoreBlocks()
	// All blocks, then all addresses are as they were before anything is carved for
	// addresses that have no block.
	for _, u := range found {
		r.adoptBlocks(r.elan(r.namespace(u.Namespace), u.Node), u.Addresses)
	}
	for _, u := range found {
		r.adoptAddresses(u)
	}
	for _, u := range found {
		r.adoptLease(u)
	}
	r.restoreInstances()
	numbers := r.adoptNodes(nodes)
	if err := r.flush(ctx, false); err != nil {
		return err
	}
	if r.adopting {
		r.orphans = append(r.orphans, adoptingRecord)
	}
	r.unasked, r.adopting = false, false
	r.known.Store(true)
	if len(found)+numbers > 0 {
		r.log.Info("took over what the backend has and was not remembered", "interfaces", len(found), "leases", len(r.leases), "nodes", numbers)
	}
	return nil
}

// adoptBlocks gives an elan the blocks that addresses say they are in.
func (r *round) adoptBlocks(e *elan, addresses []coe.LeasedAddress) {
	for _, x := range addresses {
		if !x.Network.Contains(x.Gateway) || x.Network != x.Network.Masked() || r.alloc.Owner(e.Domain, x.Gateway) != "" {
			continue
		}
		r.adoptBlock(e, x.Network, x.Gateway)
	}
}

// adoptBlock gives the elan a block, of the pool around it. One of which no pool
// knows (yet) gives nothing more, and keeps others off while it is there. Where
// it is there already, or overlaps another, nothing changes: addresses that have
// no block are claimed.
func (r *round) adoptBlock(e *elan, prefix netip.Prefix, gateway netip.Addr) {
	b := dhcppool.Block{ELAN: e.ELAN, Prefix: prefix, Gateway: gateway}
	if prefix.IsSingleIP() {
		_ = r.alloc.RestoreBlock(b)
		return
	}
	for _, network := range e.networks() {
		if p, found := r.alloc.PoolAround(network, prefix); found {
			if b.Network, b.Subnet = network, p.Subnet; r.alloc.RestoreBlock(b) == nil {
				return
			}
		}
	}
	b.Network, b.Subnet = e.Name, prefix
	_ = r.alloc.RestoreBlock(b)
}

// adoptAddresses holds the interface's addresses: in their blocks where they are
// in one, else in none until the lease is made.
func (r *round) adoptAddresses(u *InUse) {
	e, owner := r.elan(r.namespace(u.Namespace), u.Node), leaseRecord(u.key())
	for _, x := range u.Addresses {
		inBlock := x.Network.Contains(x.Address) || x.Network.IsValid() && x.Network.IsSingleIP()
		held := dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: owner, ELAN: e.Name, Prefix: x.Network}
		if !inBlock || r.alloc.RestoreAddress(held) != nil {
			r.alloc.Hold(e.Domain, x.Address, owner)
		}
	}
}

// adoptLease creates a lease with the addresses that the interface holds.
func (r *round) adoptLease(u *InUse) {
	s := &space{namespace: r.namespace(u.Namespace)}
	e := r.elan(s.namespace, u.Node)
	var c chosen
	for _, x := range u.Addresses {
		if b, found := r.adoptedBlock(e, u, x.Address); found {
			c.add(x.Address, b)
		}
	}
	if len(c.addresses) == 0 {
		return
	}
	if r.identify(s, e) != nil {
		r.undo(s, c, nil)
		return
	}
	l := &coe.Lease{
		PodUID: u.PodUID, InterfaceUID: u.InterfaceUID, Seq: r.seq + 1,
		Namespace: u.Namespace, Pod: u.Pod, Primary: u.Primary, Node: u.Node,
		Name: netvirt.InterfaceName(u.Namespace, u.Pod, u.InterfaceUID, u.Primary),
		MAC:  unicastMAC(u.MAC), Addresses: c.addresses, Chosen: r.now.UnixMilli(),
	}
	free := func(mac string) bool { _, taken := e.macs[mac]; return !taken }
	if l.MAC == "" || !free(l.MAC) {
		l.MAC = freeMAC(l.Addresses[0].Address, free)
	}
	r.putInstances(s, e)
	r.putBlocks(s, c.blocks)
	r.putLease(l)
}

// adoptedBlock is the block through which an interface has an address that it
// holds.
func (r *round) adoptedBlock(e *elan, u *InUse, addr netip.Addr) (dhcppool.Block, bool) {
	owner := leaseRecord(u.key())
	if r.alloc.Owner(e.Domain, addr) != owner {
		return dhcppool.Block{}, false // another has it too, and was first
	}
	if b, found := r.alloc.Through(e.Domain, addr); found {
		return b, true
	}
	network, _ := r.alloc.Serving(e.networks()...)
	claim := dhcppool.Claim{ELAN: e.ELAN, Network: network, Address: addr, Owner: owner}
	if n := r.store.Nodes()[u.Node]; n != nil {
		claim.NodeNet = n.PodCIDR(addr)
	}
	b, err := r.alloc.Claim(claim)
	if err != nil {
		r.alloc.Release(e.Domain, addr)
	}
	return b, err == nil
}
