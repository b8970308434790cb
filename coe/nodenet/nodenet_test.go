package nodenet_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

func TestRange(t *testing.T) {
	n := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/29")}
	require.Equal(t, uint32(1), n.Numbers())
	require.Equal(t, "100.96.0.1", n.Gateway().String())
	require.Equal(t, "100.96.0.2", n.Address(1).String())
	require.Equal(t, "100.96.0.3", n.ServiceAddress(1).String())
	require.Equal(t, "100.96.0.4", n.Address(2).String())
	require.Equal(t, "100.96.0.5", n.ServiceAddress(2).String())
	require.Equal(t, "0a:58:64:60:00:04", n.MAC(2))
	for text, want := range map[string]uint32{
		"100.96.0.2": 1, "100.96.0.4": 2, "100.96.0.0": 0, "100.96.0.1": 0, "100.96.0.3": 0, "100.96.0.6": 0, "100.96.0.10": 0, "fd00::2": 0,
	} {
		require.Equal(t, want, n.Number(netip.MustParseAddr(text)), text)
	}
	require.Zero(t, n.Number(netip.Addr{}))
	require.Zero(t, nodenet.Range{}.Number(n.Address(1)))
	for _, last := range []string{"100.96.0.0/16", "0.0.0.0/0"} {
		n := nodenet.Range{Prefix: netip.MustParsePrefix(last)}
		require.True(t, n.Contains(n.ServiceAddress(n.Numbers())))
	}
	for _, none := range []nodenet.Range{
		{}, {Prefix: netip.MustParsePrefix("100.96.0.0/30")}, {Prefix: netip.MustParsePrefix("fd00::/126")},
	} {
		require.Zero(t, none.Numbers())
	}
}

// The addresses of a node in an IPv6 range follow from its number too. A range has addresses for each number of an IPv4
// range that is not larger.
func TestRangeOfIPv6(t *testing.T) {
	n := nodenet.Range{Prefix: netip.MustParsePrefix("fd00:96::/64")}
	require.Equal(t, "fd00:96::1", n.Gateway().String())
	require.Equal(t, "fd00:96::4", n.Address(2).String())
	require.Equal(t, "fd00:96::5", n.ServiceAddress(2).String())
	require.Equal(t, "fd00:96::ffff:fffd", n.EdgeAddress(2, 2).String())
	for bits := 0; bits <= 29; bits++ {
		v4 := nodenet.Range{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), bits)}
		v6 := nodenet.Range{Prefix: netip.PrefixFrom(n.Addr(), 96+bits)}
		last := v4.Numbers()
		require.Equal(t, last, v6.Numbers())
		for _, number := range []uint32{1, last} {
			require.True(t, v6.Has(number))
			require.True(t, v6.Contains(v6.EdgeAddress(number, last)), "%d of %s", number, v6)
			require.Positive(t, v6.EdgeAddress(number, last).Compare(v6.ServiceAddress(last)))
		}
	}
}

// Nodes never share an address, also if some have numbers of a release that gave nodes two addresses. Then
// nodes with high numbers have no edge address until the numbers end.
func TestEdgeAddresses(t *testing.T) {
	for bits := 24; bits <= 29; bits++ {
		n := nodenet.Range{Prefix: netip.PrefixFrom(netip.MustParseAddr("100.96.0.0"), bits)}
		size := uint32(1) << (32 - bits)
		most := size/2 - 2 // of such a release
		require.True(t, n.Has(most))
		require.False(t, n.Has(most+1))
		require.False(t, n.Has(0))
		for last := uint32(1); last <= most; last++ {
			taken := map[netip.Addr]bool{n.Gateway(): true, n.Addr(): true, n.EdgeAddress(0, last): true}
			edges := uint32(0)
			for number := uint32(1); number <= last; number++ {
				for _, a := range []netip.Addr{n.Address(number), n.ServiceAddress(number), n.EdgeAddress(number, last)} {
					if !a.IsValid() {
						continue
					}
					require.True(t, n.Contains(a))
					require.False(t, taken[a], "%s of %d in %s", a, number, n)
					taken[a] = true
				}
				if n.EdgeAddress(number, last).IsValid() {
					require.Equal(t, number, edges+1, "they have edge addresses in order")
					edges++
				}
			}
			require.Equal(t, last <= n.Numbers(), edges == last, "%d nodes in %s", last, n)
		}
	}
	n := nodenet.Range{Prefix: netip.MustParsePrefix("100.96.0.0/16")}
	require.Equal(t, uint32(21844), n.Numbers())
	require.Equal(t, "100.96.255.254", n.EdgeAddress(1, 1).String())
	require.False(t, nodenet.Range{}.EdgeAddress(1, 1).IsValid())
}
