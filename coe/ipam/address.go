package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// chosen has the chosen addresses of a lease, their blocks, and the resting records whose
// addresses the lease takes over.
type chosen struct {
	addresses []coe.LeasedAddress
	blocks    []dhcppool.Block
	formers   []*former
}

func (c *chosen) add(addr netip.Addr, b dhcppool.Block) {
	c.addresses = append(c.addresses, coe.LeasedAddress{Address: addr, Network: b.Prefix, Gateway: b.Gateway})
	c.blocks = append(c.blocks, b)
}

// addresses chooses the addresses of an interface: its current ones if they still fit, the
// requested ones, or one of each family of the pools.
func (r *round) addresses(s *space, e *elan, w wish, old *coe.Lease) (chosen, *coe.Refusal) {
	if old != nil && reaches(old, w.pod, w.iface) {
		return chosen{addresses: old.Addresses}, nil
	}
	network, _ := r.alloc.Serving(e.networks()...)
	switch {
	case len(w.iface.Addresses) > 0:
		return r.claimAddresses(s, e, w, network, old)
	case network == "":
		return chosen{}, &coe.Refusal{Reason: coe.NoAddress, Message: fmt.Sprintf(
			"no pool serves the pod and it requests no address; post a dhcp_allocation_pool with network-id %s, or send ip-address",
			quoted(e.networks()))}
	}
	return r.poolAddresses(s, e, w, network)
}

// poolAddresses chooses one address for each family that the network's pools have.
func (r *round) poolAddresses(s *space, e *elan, w wish, network string) (chosen, *coe.Refusal) {
	var c chosen
	owner := leaseRecord(w.key)
	for _, v6 := range []bool{false, true} {
		if !r.alloc.Serves(network, v6) {
			continue
		}
		if f := s.former(w.key, func(f *former) bool { return f.Node == e.node && f.Address.Address.Is6() == v6 }); f != nil {
			r.alloc.Pass(s.domain, f.Address.Address, owner)
			c.addresses = append(c.addresses, f.Address)
			c.formers = append(c.formers, f)
			continue
		}
		addr, block, err := r.alloc.Allocate(e.ELAN, network, v6, owner)
		if err != nil {
			r.undo(s, c, nil)
			return chosen{}, e.exhausted(network, err)
		}
		c.add(addr, block)
	}
	return c, nil
}

// undo releases chosen addresses. An address that was taken from a resting record, or from the
// lease that should be replaced, is held for that record again.
func (r *round) undo(s *space, c chosen, old *coe.Lease) {
	for _, a := range c.addresses {
		r.alloc.Release(s.domain, a.Address)
	}
	for _, f := range c.formers {
		r.giveBack(formerRecord(f), f.Namespace, f.Node, f.Address)
	}
	if old == nil {
		return
	}
	for _, a := range old.Addresses {
		r.giveBack(leaseRecord(old.Key()), old.Namespace, old.Node, a)
	}
}

// giveBack holds an address for its record again.
func (r *round) giveBack(record, namespace string, node netip.Addr, x coe.LeasedAddress) {
	e := r.elan(r.namespace(namespace), node)
	b, found := r.alloc.Through(e.Domain, x.Address)
	if found && b.ELAN == e.ELAN && b.Prefix == x.Network && r.alloc.Owner(e.Domain, x.Address) == record {
		return
	}
	r.alloc.Release(e.Domain, x.Address)
	err := r.alloc.RestoreAddress(dhcppool.Held{Domain: e.Domain, Address: x.Address, Owner: record, ELAN: e.Name, Prefix: x.Network})
	if err != nil {
		panic(fmt.Sprintf("ipam: give %s back to %s: %v", x.Address, record, err))
	}
}

// former returns a resting address of an interface.
func (ns *namespace) former(key coe.LeaseKey, match func(*former) bool) *former {
	for _, f := range ns.formers[key] {
		if match(f) {
			return f
		}
	}
	return nil
}

// claimAddresses claims the requested addresses.
func (r *round) claimAddresses(s *space, e *elan, w wish, network string, old *coe.Lease) (chosen, *coe.Refusal) {
	var c chosen
	for _, addr := range w.iface.Addresses {
		if refusal := r.claimAddress(s, e, w, network, addr, &c); refusal != nil {
			r.undo(s, c, old)
			return chosen{}, refusal
		}
	}
	return c, nil
}

// claimAddress adds a requested address to the chosen ones.
func (r *round) claimAddress(s *space, e *elan, w wish, network string, addr netip.Addr, c *chosen) *coe.Refusal {
	if addr == w.pod.HostIP {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
			"%s is the address of the pod's node; send one of the pod's own", addr)}
	}
	if refusal := r.permit(w, network, addr); refusal != nil {
		return refusal
	}
	if f := s.former(w.key, func(f *former) bool { return f.Address.Address == addr }); f != nil {
		r.alloc.Pass(s.domain, addr, leaseRecord(w.key))
		c.formers = append(c.formers, f)
	}
	claim := dhcppool.Claim{ELAN: e.ELAN, Network: network, Address: addr, Owner: leaseRecord(w.key)}
	if n := s.view.Nodes[w.pod.HostIP]; n != nil {
		claim.NodeNet = n.PodCIDR(addr)
	}
	block, err := r.alloc.Claim(claim)
	if err != nil {
		return r.refuseAddress(err)
	}
	c.add(addr, block)
	return nil
}

// refuseAddress explains why a requested address cannot be given.
func (r *round) refuseAddress(err error) *coe.Refusal {
	var taken *dhcppool.TakenError
	if errors.As(err, &taken) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", taken.Address, r.holder(taken.Owner))}
	}
	return &coe.Refusal{Reason: coe.AddressInvalid, Message: err.Error() + "; send another ip-address"}
}

// holder describes who holds an address.
func (r *round) holder(owner string) string {
	switch {
	case isLeaseRecord(owner):
		l := r.leases[leaseOf(owner)]
		if l == nil {
			return "is requested by another interface, of pod " + leaseOf(owner).PodUID
		}
		if l.Released != 0 {
			return fmt.Sprintf("rests until %s after its use by pod %s/%s (%s)", r.restsUntil(owner), l.Namespace, l.Pod, l.PodUID)
		}
		return fmt.Sprintf("is the address of pod %s/%s (%s); send another ip-address, or delete that pod", l.Namespace, l.Pod, l.PodUID)
	case isServiceRecord(owner):
		return "is the address of service " + strings.TrimPrefix(owner, serviceKind)
	case strings.HasPrefix(owner, nodeKind):
		return "is the address of node " + strings.TrimPrefix(owner, nodeKind)
	case strings.HasPrefix(owner, formerKind):
		uid, _, _ := strings.Cut(strings.TrimPrefix(owner, formerKind), "/")
		return "rests for a while after its use by pod " + uid
	}
	return "is the cluster address of a service"
}
