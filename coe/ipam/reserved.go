package ipam

import (
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
)

// RefuseEgress returns the reason why an address cannot be an egress address, or nil.
func (a *Assigner) RefuseEgress(addr netip.Addr) *coe.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refused := a.reserved.Egress(addr, a.store.Nodes()[addr]); refused != nil {
		return refused
	}
	if of := a.atGateway(addr); of != "" {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s is %s; send another", addr, of)}
	}
	for c := range a.vips.External(addr) {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s belongs to a service of namespace %s", addr, c.Namespace)}
	}
	if c := a.vips.Cluster(addr); c != nil {
		return &coe.Refusal{Reason: coe.AddressTaken, Message: fmt.Sprintf("egress address %s belongs to a service of namespace %s", addr, c.Namespace)}
	}
	return nil
}

// atGateway says which gateway has an address, as its own or as its next hop; empty if none has.
func (a *Assigner) atGateway(addr netip.Addr) string {
	for _, g := range a.store.Gateways() {
		for _, f := range g.Families() {
			switch addr {
			case f.Address.Addr():
				return "the address of the gateway of node " + a.nodeName(g.Node)
			case f.NextHop:
				return "the next hop of the gateway of node " + a.nodeName(g.Node)
			}
		}
	}
	return ""
}

// nodeName returns the name of the node with an address; the address if it is unknown.
func (a *Assigner) nodeName(addr netip.Addr) string {
	if n := a.store.Nodes()[addr]; n != nil && n.HostName != "" {
		return n.HostName
	}
	return addr.String()
}

// reserveAgain updates the reserved addresses from the settings, pools and nodes. It returns the
// namespaces with services whose addresses may now be refused or allowed.
func (a *Assigner) reserveAgain() (changed []string) {
	now := ranges.Reserve(a.cfg.Nodes, a.pools, a.serviceCIDRs.ranges, a.store.Nodes(), a.store.EgressIPs())
	if now.Equal(a.reserved) {
		return nil
	}
	a.reserved = now
	for addr := range a.vips.ExternalAddresses() {
		if addr.IsUnspecified() || now.External(addr) == nil { // node ports stay
			continue
		}
		for c := range a.vips.External(addr) {
			changed = append(changed, c.Namespace)
		}
	}
	for ns, refused := range a.waiting {
		for _, r := range refused.services {
			if r.Reason == coe.AddressTaken {
				changed = append(changed, ns)
				break
			}
		}
	}
	return changed
}
