package dhcppool_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func pool(network, subnet, from, to, gateway string) dhcppool.Pool {
	return dhcppool.Pool{
		Network: network, Subnet: netip.MustParsePrefix(subnet),
		From: addr(from), To: addr(to), Gateway: addr(gateway),
	}
}

func TestValidate(t *testing.T) {
	withDNS := pool("default", "10.0.0.0/24", "", "", "")
	withDNS.DNS = []netip.Addr{addr("fd00::1")}
	for name, c := range map[string]struct {
		pools     []dhcppool.Pool
		oneDomain bool
		want      string // empty if valid
	}{
		"the specification's pool":  {pools: []dhcppool.Pool{pool("default", "192.168.10.0/24", "192.168.10.3", "192.168.10.50", "192.168.10.2")}},
		"nothing but a subnet":      {pools: []dhcppool.Pool{pool("default", "10.11.2.0/24", "", "", "")}},
		"both families":             {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", ""), pool("default", "fd00::/64", "", "", "")}, oneDomain: true},
		"no network":                {pools: []dhcppool.Pool{pool("", "10.0.0.0/24", "", "", "")}, want: "network-id is empty"},
		"no subnet":                 {pools: []dhcppool.Pool{{Network: "default"}}, want: "subnet is missing"},
		"multicast":                 {pools: []dhcppool.Pool{pool("default", "224.0.0.0/24", "", "", "")}, want: "unicast"},
		"from outside":              {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "10.0.1.3", "", "")}, want: `pool "default", subnet 10.0.0.0/24: allocate-from 10.0.1.3 lies outside the subnet`},
		"to outside":                {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "10.0.1.3", "")}, want: "allocate-to 10.0.1.3 lies outside"},
		"gateway outside":           {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", "10.0.1.1")}, want: "gateway 10.0.1.1 lies outside"},
		"gateway is the network":    {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", "10.0.0.0")}, want: "network or broadcast"},
		"gateway is broadcast":      {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", "10.0.0.255")}, want: "network or broadcast"},
		"families mixed":            {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "fd00::1", "", "")}, want: "allocate-from fd00::1 lies outside"},
		"families mixed in DNS":     {pools: []dhcppool.Pool{withDNS}, want: "dns-servers fd00::1 is of another address family"},
		"from above to":             {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "10.0.0.9", "10.0.0.8", "")}, want: "above allocate-to"},
		"the gateway alone":         {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "10.0.0.9", "10.0.0.9", "10.0.0.9")}, want: "leaves no address"},
		"a single address":          {pools: []dhcppool.Pool{pool("default", "10.0.0.1/32", "", "", "")}, want: "leaves no address"},
		"twice":                     {pools: []dhcppool.Pool{pool("default", "10.0.0.0/24", "", "", ""), pool("default", "10.0.0.5/24", "", "", "")}, want: "appears twice"},
		"overlap in a network":      {pools: []dhcppool.Pool{pool("default", "10.0.0.0/16", "", "", ""), pool("default", "10.0.1.0/24", "", "", "")}, want: `pool "default", subnet 10.0.1.0/24: overlaps subnet 10.0.0.0/16 of pool "default"`},
		"overlap in one domain":     {pools: []dhcppool.Pool{pool("a", "10.0.0.0/16", "", "", ""), pool("services", "10.0.1.0/24", "", "", "")}, oneDomain: true, want: "overlaps"},
		"overlap of isolated ones":  {pools: []dhcppool.Pool{pool("a", "10.0.0.0/16", "", "", ""), pool("b", "10.0.1.0/24", "", "", "")}},
		"neighbours in one domain":  {pools: []dhcppool.Pool{pool("a", "10.0.1.0/24", "", "", ""), pool("b", "10.0.0.0/24", "", "", ""), pool("c", "10.0.2.0/23", "", "", "")}, oneDomain: true},
		"overlap at the last place": {pools: []dhcppool.Pool{pool("a", "10.0.4.0/24", "", "", ""), pool("b", "10.0.0.0/24", "", "", ""), pool("c", "10.0.4.128/25", "", "", "")}, oneDomain: true, want: `pool "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := dhcppool.Validate(c.pools, c.oneDomain)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for subnet, want := range map[string]int64{
		"10.0.0.0/24": 253, "10.0.0.0/30": 1, "10.0.0.0/31": 1, "10.0.0.0/32": 0, "fd00::/120": 254, "fd00::/48": 1<<63 - 1,
	} {
		require.Equal(t, want, pool("default", subnet, "", "", "").Size(), subnet)
	}
	require.Equal(t, int64(48), pool("default", "192.168.10.0/24", "192.168.10.3", "192.168.10.50", "192.168.10.2").Size())
}
