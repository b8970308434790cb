package dhcppool

import (
	"fmt"
	"net/netip"
	"strings"
)

// DefaultNetwork is the network-id of the pools that serve everything without pools of its
// own.
const DefaultNetwork = "default"

// Parse parses a pool in the form of a flag:
//
//	[NETWORK=]SUBNET[,gateway=ADDR][,from=ADDR][,to=ADDR][,dhcp][,dns=ADDR]...
//
// NETWORK defaults to "default", and dns may be repeated. Parse checks the pool like Validate,
// but not against other pools. Bounds that the text does not contain are zero.
func Parse(text string) (Pool, error) {
	p, err := parse(text)
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		return Pool{}, fmt.Errorf("parse pool %q: %w", text, err)
	}
	return p, nil
}

func parse(text string) (Pool, error) {
	parts := strings.Split(text, ",")
	network, subnet, named := strings.Cut(parts[0], "=")
	if !named {
		network, subnet = DefaultNetwork, parts[0]
	}
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return Pool{}, fmt.Errorf("%q is not a subnet; write [NETWORK=]SUBNET, for example 10.11.0.0/16 or services=10.96.0.0/24", subnet)
	}
	p := Pool{Network: network, Subnet: prefix.Masked()}
	for _, part := range parts[1:] {
		if err := p.parseOption(part); err != nil {
			return Pool{}, err
		}
	}
	return p, nil
}

func (p *Pool) parseOption(part string) error {
	if part == "dhcp" {
		p.DHCP = true
		return nil
	}
	name, value, named := strings.Cut(part, "=")
	single, known := map[string]*netip.Addr{"gateway": &p.Gateway, "from": &p.From, "to": &p.To}[name]
	if !named || !known && name != "dns" {
		return fmt.Errorf("%q is not an option; write gateway=ADDR, from=ADDR, to=ADDR, dhcp, or dns=ADDR once for each server", part)
	}
	addr, err := netip.ParseAddr(value)
	switch {
	case err != nil || addr.Zone() != "":
		return fmt.Errorf("%s: %q is not an address", name, value)
	case name == "dns":
		p.DNS = append(p.DNS, addr)
	case single.IsValid():
		return fmt.Errorf("%s is set twice", name)
	default:
		*single = addr
	}
	return nil
}

// String returns the pool in the form that Parse accepts.
func (p Pool) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s=%s", p.Network, p.Subnet)
	option := func(name string, addr netip.Addr) {
		if addr.IsValid() {
			fmt.Fprintf(&s, ",%s=%s", name, addr)
		}
	}
	option("gateway", p.Gateway)
	option("from", p.From)
	option("to", p.To)
	if p.DHCP {
		s.WriteString(",dhcp")
	}
	for _, addr := range p.DNS {
		option("dns", addr)
	}
	return s.String()
}
