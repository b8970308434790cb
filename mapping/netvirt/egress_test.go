package netvirt_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// The links of EgressIPs are disjoint, and never have an address that clouds use.
func TestEgressLinks(t *testing.T) {
	var last netip.Prefix
	for number := uint16(1); number <= netvirt.MaxEgressIPs; number++ {
		link := netvirt.EgressLink(number)
		require.False(t, last.IsValid() && last.Overlaps(link))
		require.True(t, netip.MustParsePrefix("169.254.64.0/18").Overlaps(link))
		for host := range 2 {
			require.True(t, link.Contains(netvirt.EgressNextHop(number, host)))
			require.NotEqual(t, link.Addr(), netvirt.EgressNextHop(number, host))
		}
		last = link
	}
	require.Equal(t, "169.254.127.249/29", last.String())
	require.Equal(t, "0a:58:a9:fe:40:0b", netvirt.EgressMAC(1, 1))
	require.Equal(t, "egress:7:port2", netvirt.EgressPortName(7, 1))
}
