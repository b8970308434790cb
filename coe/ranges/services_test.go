package ranges_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestServiceRanges(t *testing.T) {
	cidrs := []*coe.ServiceCIDR{
		{UID: "1", Name: "kubernetes", CIDRs: prefixes("10.96.0.0/16", "fd00:96::/108")},
		{UID: "2", Name: "nodes", CIDRs: prefixes("100.96.3.0/24")},
		{UID: "3", Name: "pods", CIDRs: prefixes("10.11.3.0/24", "10.99.0.0/16")},
	}
	pools := []dhcppool.Pool{
		{Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/16")}, {Network: coe.ServicePool, Subnet: netip.MustParsePrefix("10.96.0.0/24")},
	}
	reserved := ranges.List{{Prefix: netip.MustParsePrefix("100.96.0.0/16"), Use: "the node network"}, {Prefix: netip.MustParsePrefix("10.96.0.0/12"), Services: true}}
	used, problems := ranges.ServiceRanges(cidrs, pools, reserved)
	require.Equal(t, prefixes("10.96.0.0/16", "fd00:96::/108", "10.99.0.0/16"), used)
	require.Len(t, problems, 2)
	require.Equal(t, "nodes do not reach its range 100.96.3.0/24: it overlaps 100.96.0.0/16, the range of the node network; use another range", problems[0].Message)
	require.Equal(t, "pods", problems[1].Name)
	require.Contains(t, problems[1].Message, `10.11.3.0/24: it overlaps 10.11.0.0/16 of pool "default"`)
}
