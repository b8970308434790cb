package dhcppool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Validate checks the pools, one by one and together. The error names the pool and the leaf.
// If oneDomain is set, all networks share one address space (isolation "none") and no two
// subnets may overlap; else subnets of one network must not overlap.
func Validate(pools []Pool, oneDomain bool) error {
	for _, p := range pools {
		if err := p.validate(); err != nil {
			return fmt.Errorf("pool %q, subnet %s: %w", p.Network, p.Subnet, err)
		}
	}
	spaces := map[string][]Pool{}
	for _, p := range pools {
		space := p.Network
		if oneDomain {
			space = ""
		}
		spaces[space] = append(spaces[space], p.normal())
	}
	for _, p := range pools {
		space := p.Network
		if oneDomain {
			space = ""
		}
		if err := validateApart(spaces[space]); err != nil {
			return err
		}
		delete(spaces, space)
	}
	return nil
}

func (p Pool) validate() error {
	if p.Network == "" {
		return fmt.Errorf("network-id is empty: give the pool a network-id, for example \"default\"")
	}
	if !p.Subnet.IsValid() {
		return fmt.Errorf("subnet is missing")
	}
	if a := p.Subnet.Addr(); a.Is4In6() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
		return fmt.Errorf("subnet has no addresses for pods: use a subnet of unicast addresses")
	}
	for _, leaf := range []struct {
		name string
		addr netip.Addr
	}{{"allocate-from", p.From}, {"allocate-to", p.To}, {"gateway", p.Gateway}} {
		if leaf.addr.IsValid() && !p.Subnet.Contains(leaf.addr) {
			return fmt.Errorf("%s %s lies outside the subnet", leaf.name, leaf.addr)
		}
	}
	for _, d := range p.DNS {
		if d.Is4() != p.Subnet.Addr().Is4() {
			return fmt.Errorf("dns-servers %s is of another address family than the subnet", d)
		}
	}
	return p.normal().validateRange()
}

// validateRange checks a pool whose bounds are filled in.
func (p Pool) validateRange() error {
	if p.To.Less(p.From) {
		return fmt.Errorf("allocate-from %s is above allocate-to %s", p.From, p.To)
	}
	if first, last := usable(p.Subnet); p.Gateway.Less(first) || last.Less(p.Gateway) {
		return fmt.Errorf("gateway %s is the subnet's network or broadcast address", p.Gateway)
	}
	if p.Size() < 1 {
		return fmt.Errorf("allocate-from %s to allocate-to %s leaves no address beside gateway %s", p.From, p.To, p.Gateway)
	}
	return nil
}

// validateApart reports the first two subnets that overlap.
func validateApart(pools []Pool) error {
	slices.SortStableFunc(pools, func(a, b Pool) int {
		return cmp.Or(a.Subnet.Addr().Compare(b.Subnet.Addr()), cmp.Compare(a.Subnet.Bits(), b.Subnet.Bits()))
	})
	for i := 1; i < len(pools); i++ {
		a, b := pools[i-1], pools[i]
		if a.Network == b.Network && a.Subnet == b.Subnet {
			return fmt.Errorf("pool %q, subnet %s: appears twice", b.Network, b.Subnet)
		}
		if netipx.PrefixLastIP(a.Subnet).Compare(b.Subnet.Addr()) >= 0 {
			return fmt.Errorf("pool %q, subnet %s: overlaps subnet %s of pool %q", b.Network, b.Subnet, a.Subnet, a.Network)
		}
	}
	return nil
}
