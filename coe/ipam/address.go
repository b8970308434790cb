package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// chosen has the chosen addresses of a lease, their blocks, and the resting records whose
// addresses the lease takes over.
type chosen struct {
	addresses []coe.LeasedAddress
	newBlocks []dhcppool.Block
	formers   []*journal.Former
}

func (c *chosen) add(e *elan, addr netip.Addr, b dhcppool.Block) {
	c.addresses = append(c.addresses, coe.LeasedAddress{Address: addr, Network: e.network(b), Gateway: b.Gateway})
	c.newBlocks = append(c.newBlocks, b)
}

// chooseAddresses chooses the addresses of the interface: its current ones if they still fit, the
// requested ones, or one of each family of the pools.
func (c *claim) chooseAddresses() *coe.Refusal {
	if c.old != nil && reaches(c.old, c.pod, c.iface) {
		c.addresses = c.old.Addresses
		return nil
	}
	network, _ := c.alloc.Serving(c.elan.networks()...)
	if network == "" && len(c.iface.Addresses) == 0 {
		return &coe.Refusal{Reason: coe.NoAddress, Message: fmt.Sprintf(
			"no pool serves the pod and it requests no address; post a dhcp_allocation_pool with network-id %s, or send ip-address",
			quoted(c.elan.networks()))}
	}
	if len(c.iface.Addresses) == 0 {
		return c.addPoolAddresses(network)
	}
	for _, addr := range c.iface.Addresses {
		if refusal := c.addRequested(network, addr); refusal != nil {
			return refusal
		}
	}
	return nil
}

// addPoolAddresses chooses one address for each family that the network's pools have.
func (c *claim) addPoolAddresses(network string) *coe.Refusal {
	owner := journal.LeaseRecord(c.key)
	for _, v6 := range []bool{false, true} {
		if !c.alloc.Serves(network, v6) {
			continue
		}
		if f := c.space.former(c.key, func(f *journal.Former) bool { return f.Node == c.elan.node && f.Address.Address.Is6() == v6 }); f != nil {
			c.alloc.Pass(c.space.domain, f.Address.Address, owner)
			c.addresses = append(c.addresses, f.Address)
			c.formers = append(c.formers, f)
			continue
		}
		addr, block, err := c.alloc.Allocate(c.newHolder(c.elan, network), network, v6, owner, c.elan.ELAN, c.elan.nodeHolder())
		if err != nil {
			return c.elan.exhausted(network, err)
		}
		c.add(c.elan, addr, block)
	}
	return nil
}

// undo releases the chosen addresses. An address that was taken from a resting record, or from
// the lease that should be replaced, is held for that record again.
func (c *claim) undo() {
	for _, a := range c.addresses {
		c.alloc.Release(c.space.domain, a.Address)
	}
	for _, f := range c.formers {
		c.giveBack(journal.FormerRecord(f), f.Namespace, f.Node, f.Address)
	}
	if c.old == nil {
		return
	}
	for _, a := range c.old.Addresses {
		c.giveBack(journal.LeaseRecord(c.old.Key()), c.old.Namespace, c.old.Node, a)
	}
}

// giveBack holds an address for its record again.
func (r *round) giveBack(record, namespace string, node netip.Addr, x coe.LeasedAddress) {
	e := r.elanOf(r.namespace(namespace), node)
	held := r.behind(record, e, x)
	b, found := r.alloc.Through(e.Domain, x.Address)
	if found && b.ELAN.Name == held.ELAN && b.Prefix == held.Prefix && r.alloc.Owner(e.Domain, x.Address) == record {
		return
	}
	r.alloc.Release(e.Domain, x.Address)
	if err := r.alloc.RestoreAddress(held); err != nil {
		panic(fmt.Sprintf("ipam: give %s back to %s: %v", x.Address, record, err))
	}
}

// former returns a resting address of an interface.
func (ns *namespace) former(key coe.LeaseKey, match func(*journal.Former) bool) *journal.Former {
	for _, f := range ns.formers[key] {
		if match(f) {
			return f
		}
	}
	return nil
}

// addRequested adds a requested address to the chosen ones.
func (c *claim) addRequested(network string, addr netip.Addr) *coe.Refusal {
	if addr == c.pod.HostIP {
		return &coe.Refusal{Reason: coe.AddressInvalid, Message: fmt.Sprintf(
			"%s is the address of the pod's node; send one of the pod's own", addr)}
	}
	if refusal := c.permit(network, addr); refusal != nil {
		return refusal
	}
	if f := c.space.former(c.key, func(f *journal.Former) bool { return f.Address.Address == addr }); f != nil {
		c.alloc.Pass(c.space.domain, addr, journal.LeaseRecord(c.key))
		c.formers = append(c.formers, f)
	}
	request := dhcppool.Claim{ELAN: c.elan.ELAN, Holder: c.blockHolder(c.elan, network, addr), Network: network, Address: addr, Owner: journal.LeaseRecord(c.key)}
	if n := c.space.view.Nodes[c.pod.HostIP]; n != nil {
		request.NodeNet = n.PodCIDR(addr)
	}
	block, err := c.alloc.Claim(request)
	if err != nil {
		return c.refuseAddress(err)
	}
	c.add(c.elan, addr, block)
	return nil
}

// refuseAddress explains why a requested address cannot be given.
func (c *claim) refuseAddress(err error) *coe.Refusal {
	var taken *dhcppool.TakenError
	if errors.As(err, &taken) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("%s %s", taken.Address, c.holder(taken.Owner))}
	}
	return &coe.Refusal{Reason: coe.AddressInvalid, Message: err.Error() + "; send another ip-address"}
}

// holder describes who holds an address.
func (r *round) holder(owner string) string {
	switch {
	case journal.IsLease(owner):
		l := r.leases[journal.LeaseOf(owner)]
		if l == nil {
			return "is requested by another interface, of pod " + journal.LeaseOf(owner).PodUID
		}
		if l.Released != 0 {
			return fmt.Sprintf("rests until %s after its use by pod %s/%s (%s)", r.rests.until(owner), l.Namespace, l.Pod, l.PodUID)
		}
		return fmt.Sprintf("is the address of pod %s/%s (%s); send another ip-address, or delete that pod", l.Namespace, l.Pod, l.PodUID)
	case strings.HasPrefix(owner, journal.ServiceKind):
		return "is the address of service " + strings.TrimPrefix(owner, journal.ServiceKind)
	case strings.HasPrefix(owner, journal.NodeKind):
		return "is the address of node " + strings.TrimPrefix(owner, journal.NodeKind)
	case strings.HasPrefix(owner, journal.FormerKind):
		uid, _, _ := strings.Cut(strings.TrimPrefix(owner, journal.FormerKind), "/")
		return "rests for a while after its use by pod " + uid
	}
	return "is the cluster address of a service"
}
