package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// gatewayEntry is an entry of coe-gateways:gateways.
type gatewayEntry struct {
	Node    netip.Addr     `json:"node"`
	Chassis string         `json:"chassis"`
	Address netip.Addr     `json:"address"`
	Length  int            `json:"prefix-length"`
	NextHop netip.Addr     `json:"next-hop"`
	IPv6    netip.Addr     `json:"ipv6-address,omitzero"`
	Length6 int            `json:"ipv6-prefix-length,omitempty"`
	Hop6    netip.Addr     `json:"ipv6-next-hop,omitzero"`
	Pinned  []netip.Prefix `json:"pinned-subnets,omitempty"`

	Services bool `json:"services,omitempty"`
}

// managementPort has the addresses of a node.
type managementPort struct {
	Node        netip.Addr `json:"node"`
	Second      netip.Addr `json:"second-node-address"`
	IPv6        netip.Addr `json:"ipv6-address"`
	ServiceIPv6 netip.Addr `json:"ipv6-service-address"`
	EdgeIPv6    netip.Addr `json:"ipv6-edge-address"`
}

// String returns the gateway for messages: its addresses and next hops, what it pins, and whether services are reached by it.
func (e gatewayEntry) String() string {
	text := fmt.Sprintf("%s/%d with next hop %s", e.Address, e.Length, e.NextHop)
	if e.IPv6.IsValid() {
		text += fmt.Sprintf(", and %s/%d with next hop %s", e.IPv6, e.Length6, e.Hop6)
	}
	var subnets []string
	for _, p := range e.Pinned {
		subnets = append(subnets, p.String())
	}
	if len(subnets) > 0 {
		text += ", with pinned subnets " + strings.Join(subnets, ", ")
	}
	if e.Services {
		text += ", with services"
	}
	return text
}

// wanted returns the gateway of the flags, without its chassis.
func (f *routerFlags) wanted() (e gatewayEntry, err error) {
	if (f.nic == "") == (f.onBridge == "") {
		return e, errors.New("name either a NIC with --physical-interface, or a bridge with --bridge-interface")
	}
	if err := f.outside(&e); err != nil {
		return e, err
	}
	e.Services = f.services
	for _, text := range f.pinned {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return e, fmt.Errorf("--rampout-ip-subnets %q: want a range of pods, such as 10.42.1.0/24", text)
		}
		e.Pinned = append(e.Pinned, p.Masked())
	}
	slices.SortFunc(e.Pinned, netip.Prefix.Compare)
	e.Pinned = slices.Compact(e.Pinned)
	return e, nil
}

// outside sets the addresses of a gateway in the network outside.
func (f *routerFlags) outside(e *gatewayEntry) error {
	if n := len(f.addresses); n < 1 || n > 2 || len(f.nextHops) != n {
		return errors.New("--physical-ip and --default-gw: want an IPv4 address each, and an IPv6 address after it if pods leave by IPv6 too")
	}
	for i := range f.addresses {
		address, err := netip.ParsePrefix(strings.TrimSpace(f.addresses[i]))
		if err != nil {
			return fmt.Errorf("--physical-ip %q: want an address with the length of its network, such as 10.33.74.138/24", f.addresses[i])
		}
		hop, err := netip.ParseAddr(strings.TrimSpace(f.nextHops[i]))
		if err != nil {
			return fmt.Errorf("--default-gw %q: want the address of a router, such as 10.33.74.253", f.nextHops[i])
		}
		if hop.Zone() != "" {
			return fmt.Errorf("--default-gw: %s names a link: leave out %%%s", hop, hop.Zone())
		}
		if is6 := i == 1; address.Addr().Is6() != is6 || hop.Is6() != is6 {
			return errors.New("--physical-ip and --default-gw: the first address of each is IPv4, and the second one IPv6")
		}
		if i == 0 {
			e.Address, e.Length, e.NextHop = address.Addr(), address.Bits(), hop
		} else {
			e.IPv6, e.Length6, e.Hop6 = address.Addr(), address.Bits(), hop
		}
	}
	return nil
}
