package noderules

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A pod cannot connect to the port of a database on its node or beyond it, over IPv4 and IPv6.
// It can connect to other ports, and the node itself can connect to the databases.
func TestPodsReachNoDatabase(t *testing.T) {
	node, onNode := namespace.WithShell(t)
	pod, onPod := namespace.WithShell(t)
	other, onOther := namespace.WithShell(t)
	h, err := netlink.NewHandleAt(node)
	require.NoError(t, err)
	defer h.Close()
	for link, peer := range map[string]netns.NsHandle{Link: pod, "eth0": other} {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: link})
		veth.PeerName, veth.PeerNamespace = "peer0", netlink.NsFd(peer)
		require.NoError(t, h.LinkAdd(veth))
	}
	onNode("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; ip link set lo up" +
		"; ip link set coe0 up; ip addr add 192.0.2.1/24 dev coe0; ip addr add 2001:db8:1::1/64 dev coe0 nodad" +
		"; ip link set eth0 up; ip addr add 198.51.100.1/24 dev eth0; ip addr add 2001:db8:2::1/64 dev eth0 nodad")
	onPod("ip link set peer0 up; ip addr add 192.0.2.2/24 dev peer0; ip addr add 2001:db8:1::2/64 dev peer0 nodad" +
		"; ip route add default via 192.0.2.1; ip route add default via 2001:db8:1::1")
	onOther("ip link set peer0 up; ip addr add 198.51.100.2/24 dev peer0; ip addr add 2001:db8:2::2/64 dev peer0 nodad" +
		"; ip route add default via 198.51.100.1; ip route add default via 2001:db8:2::1")
	w := ipv4()
	w.Databases = []uint16{16642}
	_, err = w.PutRules(node)
	require.NoError(t, err)

	databases, others := []string{"6640", "6641", "6642", "6643", "6644", "12379", "12380", "16642"}, []string{"6639", "6645", "8080", "12378", "12381"}
	for _, ns := range []netns.NsHandle{node, other} {
		namespace.Listen(t, ns, append(others, databases...)...)
	}
	for _, host := range []string{"192.0.2.1", "198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:2::2"} {
		for _, port := range others {
			require.NoError(t, namespace.Dial(t, pod, host, port, patience.Patience), "%s %s", host, port)
		}
		for _, port := range databases {
			requireDropped(t, onNode, pod, host, port)
			require.NoError(t, namespace.Dial(t, node, host, port, patience.Patience), "%s %s", host, port)
		}
	}
}

// requireDropped requires that the rules of the node drop a connection from a namespace.
func requireDropped(t *testing.T, onNode func(string) string, from netns.NsHandle, host, port string) {
	t.Helper()
	before := packets(onNode)
	require.Eventually(t, func() bool { // on a slow machine the time can be over before a packet is sent
		assert.Error(t, namespace.Dial(t, from, host, port, patience.Brief), "%s %s", host, port)
		return packets(onNode) > before
	}, patience.Patience, time.Millisecond, "%s %s", host, port)
}

// packets counts what the rules of the node have dropped.
func packets(onNode func(string) string) (all int) {
	for line := range strings.Lines(onNode("nft list ruleset")) {
		if _, counter, found := strings.Cut(line, "counter packets "); found && strings.Contains(line, " drop") {
			number, _, _ := strings.Cut(counter, " ")
			dropped, _ := strconv.Atoi(number)
			all += dropped
		}
	}
	return all
}

// A pod cannot connect to OpenDaylight by the link of its namespace or by the management port, over IPv4 and IPv6. It can connect
// to the same ports of others, and the node itself can connect to OpenDaylight.
func TestPodsReachNoController(t *testing.T) {
	node, onNode := namespace.WithShell(t)
	outside, onOutside := namespace.WithShell(t)
	pods := map[string]netns.NsHandle{Link: 0, NamespacePrefix + "a": 0}
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
		if link != Link {
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
	w := balancing()
	w.Controllers = []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8:2::2")}
	putTwice(t, node, w)

	for _, ns := range []netns.NsHandle{node, outside} {
		namespace.Listen(t, ns, "2550", "6653", "8181", "8080")
	}
	for link, pod := range pods {
		for _, host := range []string{"198.51.100.1", "198.51.100.2", "2001:db8:2::2"} { // one is on the node
			require.NoError(t, namespace.Dial(t, pod, host, "8080", patience.Patience), "%s %s", link, host)
			for _, port := range []string{"2550", "6653", "8181"} {
				requireDropped(t, onNode, pod, host, port)
				require.NoError(t, namespace.Dial(t, node, host, port, patience.Patience), "%s %s", host, port)
			}
		}
		for _, host := range []string{"198.51.100.3", "2001:db8:2::3"} {
			require.NoError(t, namespace.Dial(t, pod, host, "8181", patience.Patience), "%s %s", link, host)
		}
	}
}
