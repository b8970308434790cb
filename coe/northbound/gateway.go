package northbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

type gateway struct {
	Node    addr           `json:"node"`
	Chassis string         `json:"chassis"`
	Address addr           `json:"address"`
	Length  int            `json:"prefix-length"`
	NextHop addr           `json:"next-hop"`
	IPv6    addr           `json:"ipv6-address"`
	Length6 int            `json:"ipv6-prefix-length"`
	Hop6    addr           `json:"ipv6-next-hop"`
	Pinned  []netip.Prefix `json:"pinned-subnets"`

	Services bool `json:"services"`
}

// Gateway reads an entry of coe-gateways:gateways/gateway, and fails if the gateway could not work.
func Gateway(raw []byte) (*coe.Gateway, error) {
	var in gateway
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read gateway: %w", err)
	}
	out := &coe.Gateway{
		Node: in.Node.Addr, Chassis: in.Chassis, Address: netip.PrefixFrom(in.Address.Addr, in.Length), NextHop: in.NextHop.Addr, Services: in.Services,
		IPv6: coe.GatewayFamily{Address: netip.PrefixFrom(in.IPv6.Addr, in.Length6), NextHop: in.Hop6.Addr},
	}
	switch {
	case !out.Node.IsValid() || out.Chassis == "" || !out.Address.IsValid() || !out.Address.Addr().Is4() || !out.NextHop.Is4():
		return nil, errors.New("node, chassis, address, prefix-length and next-hop must be set")
	case !in.completeIPv6():
		return nil, errors.New("ipv6-address, ipv6-prefix-length and ipv6-next-hop must be set together")
	}
	for _, f := range out.Families() {
		if err := checkOutside(f); err != nil {
			return nil, err
		}
	}
	for _, p := range in.Pinned {
		if err := checkPinned(out, p); err != nil {
			return nil, err
		}
		out.Pinned = append(out.Pinned, p.Masked())
	}
	return out, nil
}

// completeIPv6 reports whether the gateway has everything that it needs for IPv6, or nothing.
func (in *gateway) completeIPv6() bool {
	if !in.IPv6.IsValid() && in.Length6 == 0 && !in.Hop6.IsValid() {
		return true
	}
	return in.IPv6.Is6() && !in.IPv6.Is4In6() && in.Length6 > 0 && in.Length6 <= in.IPv6.BitLen() && in.Hop6.Is6()
}

// checkPinned checks a pinned subnet of a gateway.
func checkPinned(g *coe.Gateway, p netip.Prefix) error {
	switch {
	case p.Bits() == 0:
		return fmt.Errorf("pinned-subnets has %s, which is not a subnet of pods: name a range of pods", p)
	case !g.Leads(p.Addr()):
		return fmt.Errorf("pinned-subnets has %s, and the gateway has no IPv6 address: set ipv6-address, ipv6-prefix-length and ipv6-next-hop", p)
	}
	return nil
}

// checkOutside checks the addresses of a gateway and of its next hop in the network outside. A next hop can be link-local.
func checkOutside(f coe.GatewayFamily) error {
	address, hop := f.Address.Addr(), f.NextHop
	switch {
	case !coe.Routable(address) || edge(f.Address):
		return fmt.Errorf("address %s is not the address of a machine in %s", address, f.Address.Masked())
	case hop.Is6() && hop.IsLinkLocalUnicast():
	case !f.Address.Contains(hop) || hop == address || edge(netip.PrefixFrom(hop, f.Address.Bits())):
		return fmt.Errorf("next-hop %s is not the address of another machine in %s", hop, f.Address.Masked())
	}
	return nil
}

// The leaves of an entry: those that each has, and those that it can have beside the leaves of IPv6.
var (
	mandatoryLeaves = []string{"node", "chassis", "address", "prefix-length", "next-hop"}
	otherLeaves     = []string{"pinned-subnets", "services"}
)

// unreadableGateway returns what can be read of an unreadable entry; nil if its key is not the address of a node.
func unreadableGateway(e Entry) *coe.Gateway {
	node, err := netip.ParseAddr(e.Key)
	if err != nil || node.String() != e.Key {
		return nil
	}
	var leaves map[string]json.RawMessage
	if e.Damaged || json.Unmarshal(e.Raw, &leaves) != nil {
		leaves = nil
	}
	out := &coe.Gateway{Node: node, Unreadable: true, IPv6Unknown: !lacksIPv6(leaves)}
	var pinned []netip.Prefix
	if json.Unmarshal(leaves["pinned-subnets"], &pinned) != nil || pinned == nil || slices.ContainsFunc(pinned, func(p netip.Prefix) bool { return p.Bits() <= 0 }) {
		out.PinsUnknown = true
		return out
	}
	for _, p := range pinned {
		out.Pinned = append(out.Pinned, p.Masked())
	}
	return out
}

// lacksIPv6 reports whether an entry with these leaves is whole, and has no leaf of IPv6 nor one that this version does not know.
func lacksIPv6(leaves map[string]json.RawMessage) bool {
	for name := range leaves {
		if !slices.Contains(mandatoryLeaves, name) && !slices.Contains(otherLeaves, name) {
			return false
		}
	}
	return !slices.ContainsFunc(mandatoryLeaves, func(name string) bool { return leaves[name] == nil })
}

// edge reports whether an address is the first or the last of its network.
func edge(p netip.Prefix) bool {
	return p.Addr() == p.Masked().Addr() || !p.Contains(p.Addr().Next())
}

// CheckGateways checks entries of gateways, which are all that there are.
func CheckGateways(entries []Entry) error {
	var all []*coe.Gateway
	for _, e := range entries {
		g, err := Gateway(e.Raw)
		if err != nil {
			return fmt.Errorf("gateway of node %s: %w", e.Key, err)
		}
		all = append(all, g)
	}
	return checkGateways(all)
}

// checkGateways checks gateways together: they must differ in address and chassis, and must not pin the same subnet.
func checkGateways(all []*coe.Gateway) error {
	serving := 0
	for i, g := range all {
		if g.Services {
			serving++
		}
		if serving > coe.MaxServingGateways {
			return fmt.Errorf("more than %d gateways have services, %s among them; each has load balancers for all services: use fewer", coe.MaxServingGateways, g.Node)
		}
		for _, other := range all[:i] {
			for _, f := range g.Families() {
				if a := f.Address.Addr(); a == other.In(a).Address.Addr() {
					return fmt.Errorf("the gateways of nodes %s and %s have the same address %s; choose another for one of them", other.Node, g.Node, a)
				}
			}
			if g.Chassis == other.Chassis {
				return fmt.Errorf("the gateways of nodes %s and %s have the same chassis %s; correct the node of one of them", other.Node, g.Node, g.Chassis)
			}
			for _, p := range g.Pinned {
				if slices.Contains(other.Pinned, p) {
					return fmt.Errorf("the gateways of nodes %s and %s pin the same subnet %s; pin it to one of them", other.Node, g.Node, p)
				}
			}
		}
	}
	return nil
}
