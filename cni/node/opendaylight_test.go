package node

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

func TestControllersOf(t *testing.T) {
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")},
		controllersOf([]string{"ssl:[2001:db8::5]:6640", "tcp:192.0.2.5:6640", "tcp:192.0.2.5:16640", "tcp:odl.example:6640"}))
}

// A pod cannot connect to OpenDaylight by the link of its namespace or by the management port, over IPv4 and IPv6. It can connect
// to the same ports of others, and the node itself can connect to OpenDaylight.
func TestPodsReachNoController(t *testing.T) {
	node, onNode := namespace.WithShell(t)
	outside, onOutside := namespace.WithShell(t)
	pods := map[string]netns.NsHandle{linkName: 0, linkOf("a"): 0}
	h, err := netlink.NewHandleAt(node)
	require.NoError(t, err)
	defer h.Close()
	attach := func(link string, peer netns.NsHandle) {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: link})
		veth.PeerName, veth.PeerNamespace = "peer0", netlink.NsFd(peer)
		require.NoError(t, h.LinkAdd(veth))
	}
	for link := range pods {
		pod, onPod := namespace.WithShell(t)
		pods[link] = pod
		attach(link, pod)
		net4, net6 := "192.0.2", "2001:db8:1::"
		if link != linkName {
			net4, net6 = "203.0.113", "2001:db8:3::"
		}
		onNode("ip link set " + link + " up; ip addr add " + net4 + ".1/24 dev " + link + "; ip addr add " + net6 + "1/64 dev " + link + " nodad")
		onPod("ip link set peer0 up; ip addr add " + net4 + ".2/24 dev peer0; ip addr add " + net6 + "2/64 dev peer0 nodad" +
			"; ip route add default via " + net4 + ".1; ip route add default via " + net6 + "1")
	}
	attach("eth0", outside)
	onNode("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; ip link set lo up" +
		"; ip link set eth0 up; ip addr add 198.51.100.1/24 dev eth0; ip addr add 2001:db8:2::1/64 dev eth0 nodad")
	onOutside("ip link set peer0 up; ip addr add 198.51.100.2/24 dev peer0; ip addr add 198.51.100.3/24 dev peer0" +
		"; ip addr add 2001:db8:2::2/64 dev peer0 nodad; ip addr add 2001:db8:2::3/64 dev peer0 nodad" +
		"; ip route add default via 198.51.100.1; ip route add default via 2001:db8:2::1")
	w := wantedOf(t, balancingPlace())
	w.controllers = controllersOf([]string{"tcp:198.51.100.2:6640", "tcp:[2001:db8:2::2]:6640", "tcp:198.51.100.1:6640"})
	twice(t, func() (bool, error) { return putRules(node, w) })

	for _, ns := range []netns.NsHandle{node, outside} {
		listen(t, ns, "2550", "6653", "8181", "8080")
	}
	for link, pod := range pods {
		for _, host := range []string{"198.51.100.1", "198.51.100.2", "2001:db8:2::2"} { // one is on the node
			require.NoError(t, dial(t, pod, host, "8080", patience.Patience), "%s %s", link, host)
			for _, port := range []string{"2550", "6653", "8181"} {
				requireDropped(t, onNode, pod, host, port)
				require.NoError(t, dial(t, node, host, port, patience.Patience), "%s %s", host, port)
			}
		}
		for _, host := range []string{"198.51.100.3", "2001:db8:2::3"} {
			require.NoError(t, dial(t, pod, host, "8181", patience.Patience), "%s %s", link, host)
		}
	}
}

// Ports of OpenDaylight in elan-instances without interfaces are unused, unless a wanted pair needs the port or the link.
func TestUnusedPorts(t *testing.T) {
	ends := map[string]string{
		"tap00000001-01": linkOf("gone"), "tap00000002-02": linkOf("used"), "tap00000003-03": linkOf("renamed"),
		"tap00000004-04": linkName, "tap00000005-05": "", portOf("ovn"): linkOf("ovn"),
	}
	pairs := []pair{{port: "tap00000002-02", link: linkOf("used")}, {port: "tap00000006-06", link: linkOf("renamed")}}
	require.Equal(t, []string{"tap00000001-01"}, unusedPorts(ends, pairs))
}
