package noderules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// ipv4 is wanted on a node with IPv4.
func ipv4() Wanted {
	return Wanted{IPv4: Family{
		Source: netip.MustParseAddr("100.96.0.2"), Nodes: netip.MustParsePrefix("100.96.0.0/16"),
		Service: netip.MustParseAddr("100.96.0.3"), Edge: netip.MustParseAddr("100.96.255.254"),
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("172.30.4.0/22")},
		Routed:   []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}}
}

// both is wanted on a node with both families.
func both() Wanted {
	w := ipv4()
	w.IPv6 = Family{
		Source: netip.MustParseAddr("fd00:96::2"), Nodes: netip.MustParsePrefix("fd00:96::/64"),
		Service: netip.MustParseAddr("fd00:96::3"), Edge: netip.MustParseAddr("fd00:96::ffff:fffe"),
		Services: []netip.Prefix{netip.MustParsePrefix("fd00:10::/108")},
		Routed:   []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
	}
	return w
}

// balancing is wanted on a node that leads its pods to services.
func balancing() Wanted {
	w := ipv4()
	w.Balances = true
	return w
}

// isolated is wanted on a node with isolated namespaces.
func isolated() Wanted {
	return Wanted{Isolated: true, IPv4: Family{Source: netip.MustParseAddr("192.168.33.11")}}
}

// putTwice puts rules twice; the second call changes nothing.
func putTwice(t *testing.T, ns netns.NsHandle, w Wanted) {
	t.Helper()
	for _, want := range []bool{true, false} {
		changed, err := w.PutRules(ns)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
}

func TestRules(t *testing.T) {
	ns, run := namespace.WithShell(t)
	run("nft add table ip others; nft add chain ip others c")
	w := ipv4()
	putTwice(t, ns, w)
	require.Equal(t, strings.TrimSpace(`
table ip coe-bridge {
	chain no-return {
		type filter hook forward priority filter; policy accept;
		iifname != "coe0" oifname "coe0" fib saddr type local counter packets 0 bytes 0 drop comment "from elsewhere not with an address of the node"
		iifname != "coe0" oifname "coe0" fib saddr oifname "coe0" counter packets 0 bytes 0 drop comment "from elsewhere not with an address that is routed to coe0"
		iifname != "coe0" oifname "coe0" ip saddr 169.254.169.5 counter packets 0 bytes 0 drop comment "from elsewhere not with the address 169.254.169.5, which a pod sees that reaches itself"
		iifname "coe0" oifname "coe0" ct status ! dnat counter packets 0 bytes 0 reject with icmp host-unreachable comment "from coe0 not back to it, except by a node port"
		iifname != "coe0" oifname "coe0" ip saddr 100.96.0.0/16 counter packets 0 bytes 0 drop comment "from nodes 100.96.0.0/16 to pods only by coe0"
	}

	chain way-out {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "coe0" ip daddr 10.96.0.0/12 fib saddr type local counter packets 0 bytes 0 snat to 100.96.0.3 comment "from the node to services 10.96.0.0/12 through coe0 with source 100.96.0.3"
		oifname "coe0" ip daddr 10.96.0.0/12 counter packets 0 bytes 0 snat to 100.96.255.254 comment "from others to services 10.96.0.0/12 through coe0 with source 100.96.255.254"
		oifname "coe0" ip daddr 172.30.4.0/22 fib saddr type local counter packets 0 bytes 0 snat to 100.96.0.3 comment "from the node to services 172.30.4.0/22 through coe0 with source 100.96.0.3"
		oifname "coe0" ip daddr 172.30.4.0/22 counter packets 0 bytes 0 snat to 100.96.255.254 comment "from others to services 172.30.4.0/22 through coe0 with source 100.96.255.254"
		iifname "coe0" oifname != "coe0" ip daddr 198.51.100.0/24 counter packets 0 bytes 0 return comment "from coe0 to 198.51.100.0/24 with the address of the pod"
		iifname "coe0" oifname != "coe0" counter packets 0 bytes 0 masquerade fully-random comment "from coe0 through other links with the address of the node"
	}
}`), strings.TrimSpace(run("nft list table ip coe-bridge")))
	require.Equal(t, strings.TrimSpace(`
table inet coe-bridge {
	chain databases-here {
		type filter hook input priority filter; policy accept;
		iifname "coe0" tcp dport 6640-6644 counter packets 0 bytes 0 drop comment "from coe0 not to database ports 6640-6644"
		iifname "coe0" tcp dport 12379-12380 counter packets 0 bytes 0 drop comment "from coe0 not to database ports 12379-12380"
	}

	chain databases-there {
		type filter hook forward priority filter; policy accept;
		iifname "coe0" tcp dport 6640-6644 counter packets 0 bytes 0 drop comment "from coe0 not to database ports 6640-6644"
		iifname "coe0" tcp dport 12379-12380 counter packets 0 bytes 0 drop comment "from coe0 not to database ports 12379-12380"
	}

	chain no-forward {
		type filter hook forward priority filter; policy accept;
		iifgroup 3086 counter packets 0 bytes 0 drop comment "from links of pods only through OVN"
	}

	chain own-pods {
		type filter hook input priority filter; policy accept;
		iifgroup 3086 counter packets 0 bytes 0 drop comment "from links of pods only through OVN"
	}
}`), strings.TrimSpace(run("nft list table inet coe-bridge")))

	without := ipv4()
	without.IPv4.Edge = netip.Addr{}
	putTwice(t, ns, without)
	require.Equal(t, 2, strings.Count(run("nft list ruleset"), "snat to 100.96.0.3"), "others get no source that policies allow")
	require.Equal(t, 2, strings.Count(run("nft list ruleset"), "snat to"))
	require.Contains(t, run("nft list chain ip coe-bridge no-return"),
		`oifname "coe0" ip daddr 10.96.0.0/12 counter packets 0 bytes 0 reject with icmp host-unreachable comment "from others not to services 10.96.0.0/12: the node has no edge address"`)

	fewer := ipv4()
	fewer.IPv4.Services = nil
	putTwice(t, ns, fewer)
	require.NotContains(t, run("nft list ruleset"), "snat to")
	for _, taken := range []string{"delete table inet coe-bridge", "flush chain inet coe-bridge databases-here", "flush chain inet coe-bridge databases-there"} {
		run("nft " + taken)
		putTwice(t, ns, fewer)
		require.Equal(t, 6, strings.Count(run("nft list table inet coe-bridge"), " drop "), taken)
	}
	run("nft delete chain ip coe-bridge way-out; nft add chain ip coe-bridge way-out '{ type filter hook output priority 0; }'")
	putTwice(t, ns, w)
	for _, want := range []bool{true, false} {
		removed, err := RemoveRules(ns)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.Contains(t, run("nft list ruleset"), "table ip others")
	require.NotContains(t, run("nft list ruleset"), tableName)
}

// A node with IPv6 addresses has the rules for IPv6 too, and no others change.
func TestRulesOfIPv6(t *testing.T) {
	ns, run := namespace.WithShell(t)
	_, err := ipv4().PutRules(ns)
	require.NoError(t, err)
	before := run("nft list table ip coe-bridge; nft list table inet coe-bridge")
	putTwice(t, ns, both())
	require.Equal(t, before, run("nft list table ip coe-bridge; nft list table inet coe-bridge"))
	require.Equal(t, strings.TrimSpace(`
table ip6 coe-bridge {
	chain no-return {
		type filter hook forward priority filter; policy accept;
		iifname != "coe0" oifname "coe0" fib saddr type local counter packets 0 bytes 0 drop comment "from elsewhere not with an address of the node"
		iifname != "coe0" oifname "coe0" fib saddr oifname "coe0" counter packets 0 bytes 0 drop comment "from elsewhere not with an address that is routed to coe0"
		iifname != "coe0" oifname "coe0" ip6 saddr fd69::5 counter packets 0 bytes 0 drop comment "from elsewhere not with the address fd69::5, which a pod sees that reaches itself"
		iifname "coe0" oifname "coe0" ct status ! dnat counter packets 0 bytes 0 reject with icmpv6 addr-unreachable comment "from coe0 not back to it, except by a node port"
		iifname != "coe0" oifname "coe0" ip6 saddr fd00:96::/64 counter packets 0 bytes 0 drop comment "from nodes fd00:96::/64 to pods only by coe0"
	}

	chain way-out {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "coe0" ip6 daddr fd00:10::/108 fib saddr type local counter packets 0 bytes 0 snat to fd00:96::3 comment "from the node to services fd00:10::/108 through coe0 with source fd00:96::3"
		oifname "coe0" ip6 daddr fd00:10::/108 counter packets 0 bytes 0 snat to fd00:96::ffff:fffe comment "from others to services fd00:10::/108 through coe0 with source fd00:96::ffff:fffe"
		iifname "coe0" oifname != "coe0" ip6 daddr 2001:db8::/32 counter packets 0 bytes 0 return comment "from coe0 to 2001:db8::/32 with the address of the pod"
		iifname "coe0" oifname != "coe0" counter packets 0 bytes 0 masquerade fully-random comment "from coe0 through other links with the address of the node"
	}
}`), strings.TrimSpace(run("nft list table ip6 coe-bridge")))
	run("nft flush chain ip6 coe-bridge no-return")
	putTwice(t, ns, both())
	putTwice(t, ns, ipv4())
	require.NotContains(t, run("nft list ruleset"), "ip6 coe-bridge")
}

func TestIsolatedRules(t *testing.T) {
	ns, run := namespace.WithShell(t)
	putTwice(t, ns, ipv4())
	w := isolated()
	putTwice(t, ns, w)
	require.Equal(t, strings.TrimSpace(`
table inet coe-bridge {
	chain databases-here {
		type filter hook input priority filter; policy accept;
		iifname "coe-*" tcp dport 6640-6644 counter packets 0 bytes 0 drop comment "from coe-* not to database ports 6640-6644"
		iifname "coe-*" tcp dport 12379-12380 counter packets 0 bytes 0 drop comment "from coe-* not to database ports 12379-12380"
	}

	chain no-forward {
		type filter hook forward priority filter; policy accept;
		iifgroup 3086 counter packets 0 bytes 0 drop comment "from links of pods only through OVN"
		iifname "coe-*" counter packets 0 bytes 0 drop comment "from coe-* nowhere else"
		oifname "coe-*" counter packets 0 bytes 0 drop comment "to coe-* from nowhere else"
	}

	chain own-pods {
		type filter hook input priority filter; policy accept;
		iifgroup 3086 counter packets 0 bytes 0 drop comment "from links of pods only through OVN"
		iifname "coe-*" ip daddr != 192.168.33.11 counter packets 0 bytes 0 drop comment "from coe-* to no address but 192.168.33.11"
		iifname "coe-*" fib saddr . iif oif missing counter packets 0 bytes 0 drop comment "from coe-* only from pods that are routed there"
		iifname "coe-*" ip6 saddr fe80::/10 meta l4proto != ipv6-icmp counter packets 0 bytes 0 drop comment "from coe-* with link-local addresses only ICMPv6"
	}
}`), strings.TrimSpace(run("nft list table inet coe-bridge")))
	require.NotContains(t, run("nft list ruleset"), "chain way-out")
	for _, taken := range []string{"delete table inet coe-bridge", "flush chain inet coe-bridge no-forward", "flush chain inet coe-bridge own-pods"} {
		run("nft " + taken)
		putTwice(t, ns, w)
		require.Equal(t, 9, strings.Count(run("nft list table inet coe-bridge"), " drop "), taken)
	}
	putTwice(t, ns, ipv4())
	require.NotContains(t, run("nft list ruleset"), "coe-*")
}

// TestBalancingRules: packets to cluster addresses that nobody serves are refused, and pods leave by the links of their namespaces.
func TestBalancingRules(t *testing.T) {
	ns, run := namespace.WithShell(t)
	w := balancing()
	w.OfPorts = true
	putTwice(t, ns, w)
	rules := run("nft list ruleset")
	for _, want := range []string{
		`oifname "coe0" ip daddr 10.96.0.0/12 counter packets 0 bytes 0 reject comment`,
		`iifname "coe-*" oifname != "coe0" counter packets 0 bytes 0 masquerade`,
		`iifname "coe-*" tcp dport 6640-6644 counter packets 0 bytes 0 drop`,
		"chain no-service",
	} {
		require.Contains(t, strings.Join(strings.Fields(rules), " "), want)
	}
	require.NotContains(t, rules, "snat to", "no source of the network's load balancers")
	putTwice(t, ns, ipv4())
	require.NotContains(t, run("nft list ruleset"), "no-service")
}
