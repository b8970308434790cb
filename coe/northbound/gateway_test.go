package northbound_test

import (
	"cmp"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
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

	six := func(more string) (*coe.Gateway, error) {
		return northbound.Gateway([]byte(`{"node":"192.168.33.11","chassis":"c1","address":"10.33.74.138","prefix-length":24,"next-hop":"10.33.74.253"` + more + `}`))
	}
	for _, hop := range []string{"2001:db8::1", "fe80::1"} {
		g, err = six(`,"ipv6-address":"2001:db8::138","ipv6-prefix-length":64,"ipv6-next-hop":"` + hop + `","pinned-subnets":["fd42::/64"]`)
		require.NoError(t, err)
		require.Equal(t, coe.GatewayFamily{Address: netip.MustParsePrefix("2001:db8::138/64"), NextHop: netip.MustParseAddr(hop)}, g.IPv6)
		require.Equal(t, g.IPv6, g.In(netip.IPv6Unspecified()))
	}
	for _, wrong := range []string{
		`,"ipv6-address":"2001:db8::138"`, `,"ipv6-address":"2001:db8::138","ipv6-next-hop":"fe80::1"`, `,"ipv6-next-hop":"fe80::1"`, `,"ipv6-prefix-length":64`,
		`,"ipv6-address":"10.33.74.139","ipv6-prefix-length":24,"ipv6-next-hop":"fe80::1"`, `,"ipv6-address":"::ffff:10.33.74.139","ipv6-prefix-length":112,"ipv6-next-hop":"fe80::1"`,
		`,"ipv6-address":"fe80::138","ipv6-prefix-length":64,"ipv6-next-hop":"fe80::1"`, `,"ipv6-address":"2001:db8::","ipv6-prefix-length":64,"ipv6-next-hop":"fe80::1"`,
		`,"ipv6-address":"2001:db8::138","ipv6-prefix-length":64,"ipv6-next-hop":"2001:db8:1::1"`, `,"pinned-subnets":["fd42::/64"]`,
	} {
		_, err := six(wrong)
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

// An entry that a new leader cannot read pins what can be read of it, or all pods. Before that it keeps what it had.
func TestUnreadableGateway(t *testing.T) {
	const node, whole = "192.168.33.11", `{"node":"192.168.33.11","chassis":"c1","address":"10.33.74.138","prefix-length":24,"next-hop":"10.33.74.253","pinned-subnets":["10.42.1.0/24"]}`
	first := func(entries ...northbound.Entry) []*coe.Gateway {
		store := state.NewStore(nil, coe.RESTCONF)
		feed := northbound.NewFeed(store, func([]dhcppool.Pool) {}, slog.New(slog.DiscardHandler))
		for i, e := range entries {
			e.List, e.Key = northbound.Gateways, cmp.Or(e.Key, node)
			feed.Apply(northbound.Batch{Revision: int64(i + 1), Snapshot: i == 0, Entries: []northbound.Entry{e}})
		}
		return store.Gateways()
	}
	at, pinned := netip.MustParseAddr(node), []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")}
	unknown := []*coe.Gateway{{Node: at, Unreadable: true, PinsUnknown: true, IPv6Unknown: true}}
	for _, raw := range []string{`{}`, `[`, `{"pinned-subnets":["::/0"]}`, `{"pinned-subnets":"x"}`} {
		require.Equal(t, unknown, first(northbound.Entry{Raw: []byte(raw)}), raw)
	}
	require.Equal(t, unknown, first(northbound.Entry{Raw: []byte(whole), Damaged: true}))
	damaged := northbound.Entry{Raw: []byte(`{"node":"192.168.33.11","pinned-subnets":["10.42.1.0/24"]}`)}
	require.Equal(t, []*coe.Gateway{{Node: at, Unreadable: true, Pinned: pinned, IPv6Unknown: true}}, first(damaged))
	for more, ipv6Unknown := range map[string]bool{
		"": false, `,"services":true`: false, `,"ipv6-next-hop":"fe80::1"`: true, `,"ipv6-address":7`: true, `,"ipv6":{}`: true,
	} {
		raw := strings.Replace(whole, `"next-hop":"10.33.74.253"`, `"next-hop":"192.0.2.1"`, 1)
		raw = raw[:len(raw)-1] + more + "}"
		require.Equal(t, []*coe.Gateway{{Node: at, Unreadable: true, Pinned: pinned, IPv6Unknown: ipv6Unknown}}, first(northbound.Entry{Raw: []byte(raw)}), raw)
	}
	require.Empty(t, first(damaged, northbound.Entry{}), "deleting it ends that")
	require.Empty(t, first(northbound.Entry{Key: "x", Raw: []byte(`{}`)}))

	readable := first(northbound.Entry{Raw: []byte(whole)})
	require.Equal(t, readable, first(northbound.Entry{Raw: []byte(whole)}, damaged), "it keeps what it had")
	require.Equal(t, readable, first(damaged, northbound.Entry{Raw: []byte(whole)}))
}
