// Package dhcppool chooses addresses and identifiers: it carves pools into blocks, hands out
// addresses of blocks, and gives names identifiers. It is deterministic and works in memory.
// The caller stores the results, and restores them with the Restore methods. The package
// knows neither pods nor leases nor time. Only one goroutine at a time may use its values.
package dhcppool

import (
	"math"
	"math/big"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Pool is one allocation pool (dhcp_allocation_pool:network/allocation-pool).
type Pool struct {
	Network string // network-id
	Subnet  netip.Prefix
	// From and To bound the addresses to hand out. Zero means the subnet's first and last
	// usable address.
	From, To netip.Addr
	// Gateway is the gateway. Zero means the subnet's first usable address.
	Gateway netip.Addr
	DNS     []netip.Addr
	// DHCP: the pods of the pool also get their addresses by DHCP.
	DHCP bool
}

// normal returns the pool with its subnet masked and absent bounds filled in.
func (p Pool) normal() Pool {
	p.Subnet = p.Subnet.Masked()
	first, last := usable(p.Subnet)
	if !p.From.IsValid() {
		p.From = first
	}
	if !p.To.IsValid() {
		p.To = last
	}
	if !p.Gateway.IsValid() {
		p.Gateway = first
	}
	return p
}

func (p Pool) equal(q Pool) bool {
	return p.Network == q.Network && p.Subnet == q.Subnet && p.From == q.From && p.To == q.To &&
		p.Gateway == q.Gateway && slices.Equal(p.DNS, q.DNS) && p.DHCP == q.DHCP
}

// Size returns the number of addresses that the pool can hand out, including the gateways of
// its blocks; at most math.MaxInt64.
func (p Pool) Size() int64 {
	p = p.normal()
	from, to := clip(p.Subnet, p.From, p.To)
	if !from.IsValid() {
		return 0
	}
	n := new(big.Int).SetBytes(to.AsSlice())
	n.Sub(n, new(big.Int).SetBytes(from.AsSlice()))
	n.Add(n, big.NewInt(1))
	if from.Compare(p.Gateway) <= 0 && p.Gateway.Compare(to) <= 0 {
		n.Sub(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// usable returns the first and last address of a prefix that an interface may have: without
// the network and broadcast address, if the prefix has them.
func usable(p netip.Prefix) (first, last netip.Addr) {
	first, last = p.Addr(), netipx.PrefixLastIP(p)
	if p.Addr().BitLen()-p.Bits() < 2 { // RFC 3021, RFC 6164: no such addresses
		return first, last
	}
	first = first.Next()
	if p.Addr().Is4() {
		last = last.Prev()
	}
	return first, last
}

// clip returns the usable part of a range in a prefix; zero addresses if there is none.
func clip(p netip.Prefix, from, to netip.Addr) (first, last netip.Addr) {
	first, last = usable(p)
	if first.Less(from) {
		first = from
	}
	if to.Less(last) {
		last = to
	}
	if last.Less(first) {
		return netip.Addr{}, netip.Addr{}
	}
	return first, last
}
