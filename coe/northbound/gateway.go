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
	}
	switch {
	case !out.Node.IsValid() || out.Chassis == "" || !out.Address.IsValid() || !out.Address.Addr().Is4() || !out.NextHop.Is4():
		return nil, errors.New("node, chassis, address, prefix-length and next-hop must be set")
	case !coe.Routable(out.Address.Addr()) || edge(out.Address):
		return nil, fmt.Errorf("address %s is not the address of a machine in %s", out.Address.Addr(), out.Address.Masked())
	case !out.Address.Contains(out.NextHop) || out.NextHop == out.Address.Addr() || edge(netip.PrefixFrom(out.NextHop, in.Length)):
		return nil, fmt.Errorf("next-hop %s is not the address of another machine in %s", out.NextHop, out.Address.Masked())
	}
	for _, p := range in.Pinned {
		if p.Bits() == 0 {
			return nil, fmt.Errorf("pinned-subnets has %s, which is not a subnet of pods: name a range of pods", p)
		}
		out.Pinned = append(out.Pinned, p.Masked())
	}
	return out, nil
}

// unreadableGateway returns what can be read of an unreadable entry; nil if its key is not the address of a node.
func unreadableGateway(e Entry) *coe.Gateway {
	node, err := netip.ParseAddr(e.Key)
	if err != nil || node.String() != e.Key {
		return nil
	}
	var in struct {
		Pinned *[]netip.Prefix `json:"pinned-subnets"`
	}
	out := &coe.Gateway{Node: node, Unreadable: true}
	if e.Damaged || json.Unmarshal(e.Raw, &in) != nil || in.Pinned == nil || slices.ContainsFunc(*in.Pinned, func(p netip.Prefix) bool { return !p.Addr().Is4() }) {
		out.PinsUnknown = true
		return out
	}
	for _, p := range *in.Pinned {
		out.Pinned = append(out.Pinned, p.Masked())
	}
	return out
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
			if g.Address.Addr() == other.Address.Addr() {
				return fmt.Errorf("the gateways of nodes %s and %s have the same address %s; choose another for one of them", other.Node, g.Node, g.Address.Addr())
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
