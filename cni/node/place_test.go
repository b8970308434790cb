package node

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

func place() *uplink.Place {
	return &uplink.Place{
		Node: netip.MustParseAddr("192.168.33.11"), Name: "node:192.168.33.11:management", MAC: "0a:58:64:60:00:02",
		Address: netip.MustParseAddr("100.96.0.2"), Length: 16, Gateway: netip.MustParseAddr("100.96.0.1"),
		Service: netip.MustParseAddr("100.96.0.3"), Edge: netip.MustParseAddr("100.96.255.254"),
		Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00::/64")},
		Services: []netip.Prefix{
			netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("172.30.4.0/22"),
		},
		NoMasquerade: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}
}

// place6 is place with IPv6 addresses.
func place6() *uplink.Place {
	p := place()
	p.IPv6 = uplink.PlaceAddresses{
		Address: netip.MustParseAddr("fd00:96::2"), Length: 64, Gateway: netip.MustParseAddr("fd00:96::1"),
		Service: netip.MustParseAddr("fd00:96::3"), Edge: netip.MustParseAddr("fd00:96::ffff:fffe"),
	}
	p.Services = append(p.Services, netip.MustParsePrefix("fd00:10::/108"))
	p.NoMasquerade = append(p.NoMasquerade, netip.MustParsePrefix("2001:db8::/32"))
	return p
}

func wantedOf(t *testing.T, p *uplink.Place) wanted {
	t.Helper()
	w, err := newWanted(p, nil, nil)
	require.NoError(t, err)
	w.mtu = 1442
	return w
}

// twice calls a function twice; the second call changes nothing.
func twice(t *testing.T, do func() (bool, error)) {
	t.Helper()
	for _, want := range []bool{true, false} {
		changed, err := do()
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
}

// TestWantedRules: the rules follow from the place of the node.
func TestWantedRules(t *testing.T) {
	at, prefix := netip.MustParseAddr, netip.MustParsePrefix
	both := noderules.Wanted{
		IPv4: noderules.Family{
			Source: at("100.96.0.2"), Nodes: prefix("100.96.0.0/16"), Service: at("100.96.0.3"), Edge: at("100.96.255.254"),
			Services: []netip.Prefix{prefix("10.96.0.0/12"), prefix("172.30.4.0/22")}, Routed: []netip.Prefix{prefix("198.51.100.0/24")},
		},
		IPv6: noderules.Family{
			Source: at("fd00:96::2"), Nodes: prefix("fd00:96::/64"), Service: at("fd00:96::3"), Edge: at("fd00:96::ffff:fffe"),
			Services: []netip.Prefix{prefix("fd00:10::/108")}, Routed: []netip.Prefix{prefix("2001:db8::/32")},
		},
	}
	require.Equal(t, both, wantedOf(t, place6()).Wanted)
	balancing := wantedOf(t, balancingPlace())
	balancing.namePorts()
	require.Equal(t, noderules.Wanted{IPv4: both.IPv4, Balances: true, OfPorts: true}, balancing.Wanted)
	isolated := noderules.Wanted{Isolated: true, IPv4: noderules.Family{Source: at("192.168.33.11")}}
	require.Equal(t, isolated, wantedOf(t, isolatedPlace()).Wanted)
	isolated.Balances, isolated.IPv4.Services = true, []netip.Prefix{prefix("10.96.0.0/12")}
	isolated.Namespaces = []noderules.Namespace{{Link: linkOf("a")}, {Link: linkOf("b"), Unrouted: []netip.Addr{at("10.42.0.2")}}}
	w, err := newWanted(leadingPlace(), records(map[string][]string{"a/one": {"10.42.0.2"}, "b/one": {"10.42.0.2"}}), nil)
	require.NoError(t, err)
	slices.SortFunc(isolated.Namespaces, func(a, b noderules.Namespace) int { return strings.Compare(a.Link, b.Link) })
	require.Equal(t, isolated, w.Wanted)
}

// A node that begins to forward IPv6 packets accepts router advertisements as before, and keeps the default route that
// came from one. It changes no other setting.
func TestForwardingKeepsAdvertisements(t *testing.T) {
	ns, run := namespace.WithShell(t)
	run("ip link add eth0 type veth peer name eth1; ip link add eth2 type veth peer name eth3; ip link add tap1 group 3086 type veth peer name tap2" +
		"; ip link set eth0 up; ip link set eth1 up; sysctl -qw net.ipv6.conf.eth2.accept_ra=0" +
		"; ip -6 route add default via fe80::1 dev eth0 proto ra")
	n := &Node{cfg: Config{Netns: ns}, log: slog.New(slog.DiscardHandler)}
	twice(t, func() (bool, error) { return n.allowForwarding(wantedOf(t, place())) })
	require.Contains(t, run("sysctl net.ipv6.conf.all.forwarding net.ipv6.conf.eth0.accept_ra"), "forwarding = 0\nnet.ipv6.conf.eth0.accept_ra = 1")
	twice(t, func() (bool, error) { return n.allowForwarding(wantedOf(t, place6())) })
	for setting, want := range map[string]string{"all.forwarding": "1", "eth0.accept_ra": "2", "eth2.accept_ra": "0", "tap1.accept_ra": "1", "lo.accept_ra": "1"} {
		require.Equal(t, want, strings.TrimSpace(run("sysctl -n net.ipv6.conf."+setting)), setting)
	}
	require.Contains(t, run("ip -6 route show default"), "via fe80::1")
	run("sysctl -qw net.ipv6.conf.eth0.accept_ra=1")
	_, err := n.allowForwarding(wantedOf(t, place6()))
	require.NoError(t, err)
	require.Equal(t, "2", strings.TrimSpace(run("sysctl -n net.ipv6.conf.eth0.accept_ra")))
	run("sysctl -qw net.ipv6.conf.eth0.accept_ra=1")
	n = &Node{cfg: Config{Netns: ns}, log: n.log}
	changed, err := n.allowForwarding(wantedOf(t, place6()))
	require.NoError(t, err)
	require.False(t, changed, "others decide on a node that forwards")
}

// Connections of others with the service address as source end once, when the node has an edge address.
func TestForgetOthers(t *testing.T) {
	ns, _ := namespace.WithShell(t)
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	require.NoError(t, err)
	defer h.Close()
	client, to, w := net.ParseIP("192.0.2.2").To4(), net.ParseIP("10.96.0.10").To4(), wantedOf(t, place())
	create := func() {
		require.NoError(t, h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 100,
			Forward: netlink.IPTuple{SrcIP: client, DstIP: to, SrcPort: 1000, DstPort: 80, Protocol: unix.IPPROTO_UDP},
			Reverse: netlink.IPTuple{SrcIP: to, DstIP: w.IPv4.Service.AsSlice(), SrcPort: 80, DstPort: 1000, Protocol: unix.IPPROTO_UDP},
		}))
	}
	n := &Node{cfg: Config{Netns: ns}}
	forget := func(w wanted, left int) {
		t.Helper()
		require.NoError(t, n.forgetOthers(w))
		all, err := h.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		require.NoError(t, err)
		require.Len(t, all, left)
	}
	create()
	without := w
	without.IPv4.Edge = netip.Addr{}
	forget(without, 1)
	forget(w, 0)
	create()
	forget(w, 1)
}

func TestDatabasePorts(t *testing.T) {
	require.Empty(t, databasePorts(nil))
	require.Equal(t, []uint16{16642}, databasePorts(map[string]string{"ovn-remote": "ssl:a:16642,ssl:b:6642,tcp:c,ssl:[fd00::1]:16642,unix:/a"}))
}

func TestLinkAddressesRoutes(t *testing.T) {
	ns, run := namespace.WithShell(t)
	n := &Node{cfg: Config{Netns: ns}}
	w := wantedOf(t, place())
	w.softwareChecksums = true
	p := w.pairs[0]
	there, err := p.exists(ns)
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, links.Make(n.pair(w, p)))
	there, err = p.exists(ns)
	require.NoError(t, err)
	require.True(t, there)
	owned, err := links.Owned(ns)
	require.NoError(t, err)
	require.Empty(t, owned, "the sweep of pods' links leaves it alone")
	twice(t, func() (bool, error) { return n.putLink(t.Context(), w, p) })
	require.Contains(t, run("ethtool -k coe0"), "tx-checksumming: off")
	twice(t, func() (bool, error) { return putAddress(ns, p) })
	twice(t, func() (bool, error) { return putRoutes(ns, w) })
	require.Equal(t, []string{
		"10.42.0.0/16 via 100.96.0.1 dev coe0 src 100.96.0.2",
		"10.96.0.0/12 via 100.96.0.1 dev coe0 src 100.96.0.2",
		"100.96.0.0/16 dev coe0 scope link src 100.96.0.2",
		"100.96.0.3 via 100.96.0.1 dev coe0 src 100.96.0.2",
		"100.96.255.254 via 100.96.0.1 dev coe0 src 100.96.0.2",
		"172.30.4.0/22 via 100.96.0.1 dev coe0 src 100.96.0.2",
	}, routesOf(run("ip route show proto 206")))

	other := place()
	other.Address, other.Service, other.MAC = netip.MustParseAddr("100.96.0.4"), netip.MustParseAddr("100.96.0.5"), "0a:58:64:60:00:04"
	other.Pods = nil
	w = wantedOf(t, other)
	w.mtu = 1400
	p = w.pairs[0]
	twice(t, func() (bool, error) { return n.putLink(t.Context(), w, p) })
	twice(t, func() (bool, error) { return putAddress(ns, p) })
	twice(t, func() (bool, error) { return putRoutes(ns, w) })
	require.NotContains(t, run("ip route"), "10.42.0.0")
	require.NotContains(t, run("ip route; ip addr"), "100.96.0.2")
	require.Contains(t, run("ip link show coe0-port"), "mtu 1400")
	require.NoError(t, removeLink(ns, p.port))
	require.NoError(t, removeLink(ns, p.port), "again")
	require.Empty(t, run("ip route"))
}

// The link gets IPv6 addresses and routes, also if it was there before without IPv6, and loses them again.
func TestLinkAddressesRoutesOfIPv6(t *testing.T) {
	ns, run := namespace.WithShell(t)
	n := &Node{cfg: Config{Netns: ns}}
	put := func(p *uplink.Place, changes bool) {
		t.Helper()
		w := wantedOf(t, p)
		all := false
		for _, do := range []func() (bool, error){
			func() (bool, error) { return n.putSettings(w.pairs[0]) },
			func() (bool, error) { return n.putLink(t.Context(), w, w.pairs[0]) },
			func() (bool, error) { return putAddress(ns, w.pairs[0]) },
			func() (bool, error) { return putRoutes(ns, w) },
		} {
			changed, err := do()
			require.NoError(t, err)
			all = all || changed
		}
		require.Equal(t, changes, all)
	}
	require.NoError(t, links.Make(n.pair(wantedOf(t, place()), wantedOf(t, place()).pairs[0])))
	put(place(), true)
	put(place(), false)
	require.NotContains(t, run("ip addr show dev coe0"), "inet6")
	for _, harm := range []string{"true", "ip -6 addr flush dev coe0", "ip -6 route flush proto 206", "sysctl -qw net.ipv6.conf.coe0.disable_ipv6=1", "ip -6 addr add 2001:db8::1/64 dev coe0"} {
		run(harm)
		put(place6(), true)
		put(place6(), false)
		require.Equal(t, []string{
			"fd00::/64 via fd00:96::1 dev coe0 src fd00:96::2 metric 1024",
			"fd00:10::/108 via fd00:96::1 dev coe0 src fd00:96::2 metric 1024",
			"fd00:96::3 via fd00:96::1 dev coe0 src fd00:96::2 metric 1024",
			"fd00:96::ffff:fffe via fd00:96::1 dev coe0 src fd00:96::2 metric 1024",
			"fd00:96::/64 dev coe0 src fd00:96::2 metric 1024",
		}, withoutPreference(run("ip -6 route show proto 206")), harm)
		require.Equal(t, 1, strings.Count(run("ip -6 -o addr show dev coe0 scope global"), "inet6"), harm)
		require.Contains(t, run("ip -6 addr show dev coe0"), "fd00:96::2/128", harm)
		require.Contains(t, run("ip -6 addr show dev coe0"), "fe80::858:64ff:fe60:2/64", "the kernel asks for neighbours with it")
	}
	put(place(), true)
	require.NotContains(t, run("ip addr show dev coe0; ip -6 route"), "fd00")
}

func withoutPreference(out string) (all []string) {
	for _, line := range routesOf(out) {
		all = append(all, strings.TrimSuffix(line, " pref medium"))
	}
	return all
}

func routesOf(out string) (all []string) {
	for line := range strings.Lines(out) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

// Objects of others stay, and the error names them.
func TestOfOthers(t *testing.T) {
	ns, run := namespace.WithShell(t)
	w := wantedOf(t, place())
	run("ip link add eth0 type veth peer name eth1; ip link set eth1 up; ip link set eth0 up; ip route add 10.42.0.0/16 dev eth0")
	n, p := &Node{cfg: Config{Netns: ns}}, w.pairs[0]
	require.NoError(t, links.Add(t.Context(), n.pair(w, p)))
	_, err := putAddress(ns, p)
	require.NoError(t, err)
	_, err = putRoutes(ns, w)
	require.ErrorContains(t, err, "add route to 10.42.0.0/16: the node already has another route to it")
	require.Contains(t, run("ip route"), "10.42.0.0/16 dev eth0")
	require.Contains(t, run("ip route"), "10.96.0.0/12 via 100.96.0.1 dev coe0", "the other routes are still added")
	w = wantedOf(t, place6())
	_, err = n.putSettings(w.pairs[0])
	require.NoError(t, err)
	run("ip -6 addr add fd00::7/64 dev eth0 nodad")
	for range 2 {
		_, err = putAddress(ns, w.pairs[0])
		require.NoError(t, err)
		_, err = putRoutes(ns, w)
		require.ErrorContains(t, err, "add route to fd00::/64: the node already has another route to it")
		require.Contains(t, run("ip -6 route"), "fd00:10::/108 via fd00:96::1 dev coe0")
	}
	require.NoError(t, removeLink(ns, p.port))

	run("ip link add coe0-port type veth peer name coe0")
	_, err = p.exists(ns)
	require.ErrorContains(t, err, "link coe0-port was not created by coe-bridge")
	require.ErrorContains(t, removeLink(ns, p.port), "not created by coe-bridge")
	require.Contains(t, run("ip link"), "coe0-port")
}

// Every change that may affect the node causes a notification.
func TestBell(t *testing.T) {
	ns, run := namespace.WithShell(t)
	n, w := &Node{cfg: Config{Netns: ns}}, wantedOf(t, place())
	require.NoError(t, links.Add(t.Context(), n.pair(w, w.pairs[0])))
	run("nft add table ip a; ip addr add 192.0.2.1/24 dev coe0; ip route add 198.51.100.0/24 dev coe0")
	ctx, cancel := context.WithCancel(t.Context())
	bell, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		n.watchKernel(ctx, bell, bell)
		close(ended)
	}()
	for _, change := range []string{
		"nft flush ruleset", "ip route del 198.51.100.0/24", "ip addr flush dev coe0", "ip link set coe0 down", "ip link del coe0",
	} {
		quiet(bell)
		run(change)
		select {
		case <-bell:
		case <-time.After(patience.Patience):
			require.Fail(t, "no notification", change)
		}
	}
	pod, _ := namespace.WithShell(t)
	rings := func() bool {
		quiet(bell)
		require.NoError(t, links.Add(t.Context(), links.Pair{Node: ns, Pod: pod, Port: "tap1", Name: "eth0", MAC: w.mac, MTU: 1400}))
		require.NoError(t, links.Delete(ns, "tap1"))
		select {
		case <-bell:
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	}
	for tries, silent := 0, 0; silent < 3; tries++ { // on a busy machine, an older change can come late
		require.Less(t, tries, 30, "a pod's link must not cause a notification")
		if silent++; rings() {
			silent = 0
		}
	}
	cancel()
	<-ended
}

// quiet waits until there is no notification for a while, so that older changes do not count.
func quiet(bell <-chan struct{}) {
	for {
		select {
		case <-bell:
		case <-time.After(200 * time.Millisecond):
			return
		}
	}
}

// A link that is too small for IPv6 gets its IPv4 addresses.
func TestSmallLink(t *testing.T) {
	ns, run := namespace.WithShell(t)
	n := &Node{cfg: Config{Netns: ns}}
	for _, is := range []*uplink.Place{place(), isolatedPlace()} {
		w, err := newWanted(is, records(map[string][]string{"a/one": {"10.42.0.2"}}), nil)
		require.NoError(t, err)
		w.mtu = 1200
		p := w.pairs[0]
		require.NoError(t, links.Make(n.pair(w, p)))
		for range 2 {
			_, err = n.putSettings(p)
			require.NoError(t, err)
			_, err = n.putLink(t.Context(), w, p)
			require.NoError(t, err)
			_, err = putAddress(ns, p)
			require.NoError(t, err)
		}
		require.Contains(t, run("ip link show "+p.link), "mtu 1200")
		require.Contains(t, run("ip link show "+p.link), ",UP")
	}
}

// A node whose kernel has no IPv6 joins by IPv4.
func TestKernelWithoutIPv6(t *testing.T) {
	ns, _ := namespace.WithShell(t)
	n := &Node{cfg: Config{Netns: ns, Settings: links.Settings(t.TempDir())}}
	n.log = slog.New(slog.DiscardHandler)
	got := n.usable(t.Context(), place6(), 1442)
	require.Contains(t, n.withoutIPv6, "the kernel of the node has no IPv6")
	require.Equal(t, uplink.PlaceAddresses{}, got.IPv6)
	require.Equal(t, place().Address, got.Address)
	n = &Node{cfg: Config{Netns: ns}, log: n.log}
	require.Equal(t, place6(), n.usable(t.Context(), place6(), minIPv6))
	require.Empty(t, n.withoutIPv6)
	require.Equal(t, uplink.PlaceAddresses{}, n.usable(t.Context(), place6(), minIPv6-1).IPv6)
	require.Contains(t, n.withoutIPv6, "links have the MTU 1279, and IPv6 needs 1280")
	require.Equal(t, place(), n.usable(t.Context(), place(), 576))
}

func TestUnreadablePlace(t *testing.T) {
	for name, spoil := range map[string]func(*uplink.Place){
		"no address":  func(p *uplink.Place) { p.Address = netip.Addr{} },
		"IPv6":        func(p *uplink.Place) { p.Gateway = netip.MustParseAddr("fd00::1") },
		"MAC address": func(p *uplink.Place) { p.MAC = "x" },
		"length":      func(p *uplink.Place) { p.Length = 33 },
		"long MAC":    func(p *uplink.Place) { p.MAC = net.HardwareAddr(make([]byte, 8)).String() },
		"address of another family": func(p *uplink.Place) {
			p.IPv6 = uplink.PlaceAddresses{Address: p.Address, Gateway: p.Gateway, Service: p.Service}
		},
		"IPv6 without a gateway": func(p *uplink.Place) { *p = *place6(); p.IPv6.Gateway = netip.Addr{} },
		"nothing at all":         func(p *uplink.Place) { *p = uplink.Place{} },
	} {
		t.Run(name, func(t *testing.T) {
			p := place()
			spoil(p)
			_, err := newWanted(p, nil, nil)
			require.ErrorContains(t, err, "node-changed from the bridge")
		})
	}
}
