package northbound_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
)

func TestGateway(t *testing.T) {
	read := func(address, nextHop string) (*coe.Gateway, error) {
		return northbound.Gateway([]byte(`{"node":"192.168.33.11","chassis":"c1","address":"` + address + `","prefix-length":24,"next-hop":"` + nextHop + `",
			"pinned-subnets":["10.42.1.0/24"]}`))
	}
	g, err := read("10.33.74.138", "10.33.74.253")
	require.NoError(t, err)
	require.Equal(t, &coe.Gateway{
		Node: netip.MustParseAddr("192.168.33.11"), Chassis: "c1", Address: netip.MustParsePrefix("10.33.74.138/24"),
		NextHop: netip.MustParseAddr("10.33.74.253"), Pinned: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")},
	}, g)
	for _, wrong := range [][2]string{
		{"10.33.74.0", "10.33.74.253"}, {"10.33.74.255", "10.33.74.253"}, {"127.0.0.5", "127.0.0.1"}, {"224.0.0.5", "224.0.0.1"},
		{"10.33.74.138", "10.33.75.253"}, {"10.33.74.138", "10.33.74.138"}, {"10.33.74.138", "10.33.74.255"}, {"10.33.74.138", ""},
	} {
		_, err := read(wrong[0], wrong[1])
		require.Error(t, err, wrong)
	}

	check := func(change string) error {
		entry := func(text string) northbound.Entry { return northbound.Entry{Key: "x", Raw: []byte(text)} }
		return northbound.CheckGateways([]northbound.Entry{
			entry(`{"node":"192.168.33.11","chassis":"c1","address":"10.33.74.138","prefix-length":24,"next-hop":"10.33.74.253","pinned-subnets":["10.42.1.0/24"]}`),
			entry(`{"node":"192.168.33.12",` + change + `,"prefix-length":24,"next-hop":"10.33.74.253"}`),
		})
	}
	require.NoError(t, check(`"chassis":"c2","address":"10.33.74.139","pinned-subnets":["10.42.0.0/16"]`))
	require.ErrorContains(t, check(`"chassis":"c2","address":"10.33.74.138"`), "have the same address 10.33.74.138")
	require.ErrorContains(t, check(`"chassis":"c1","address":"10.33.74.139"`), "have the same chassis c1")
	require.ErrorContains(t, check(`"chassis":"c2","address":"10.33.74.139","pinned-subnets":["10.42.1.0/24"]`), "pin the same subnet 10.42.1.0/24")
	require.ErrorContains(t, check(`"chassis":"c2","address":"10.33.74.139","pinned-subnets":["0.0.0.0/0"]`), "pinned-subnets has 0.0.0.0/0")
	require.ErrorContains(t, check(`"chassis":"c2","address":"10.33.74.0"`), "gateway of node x: address 10.33.74.0 is not the address of a machine")
}
