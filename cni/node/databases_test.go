package node

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
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
	for link, peer := range map[string]netns.NsHandle{linkName: pod, "eth0": other} {
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
	w := wantedOf(t, place())
	w.databases = []uint16{16642}
	_, err = putRules(node, w)
	require.NoError(t, err)

	databases, others := []string{"6640", "6641", "6642", "6643", "6644", "12379", "12380", "16642"}, []string{"6639", "6645", "8080", "12378", "12381"}
	for _, ns := range []netns.NsHandle{node, other} {
		listen(t, ns, append(others, databases...)...)
	}
	for _, host := range []string{"192.0.2.1", "198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:2::2"} {
		for _, port := range others {
			require.NoError(t, dial(t, pod, host, port, patience.Patience), "%s %s", host, port)
		}
		for _, port := range databases {
			requireDropped(t, onNode, pod, host, port)
			require.NoError(t, dial(t, node, host, port, patience.Patience), "%s %s", host, port)
		}
	}
}

// requireDropped requires that the rules of the node drop a connection from a namespace.
func requireDropped(t *testing.T, onNode func(string) string, from netns.NsHandle, host, port string) {
	t.Helper()
	before := packets(onNode)
	require.Eventually(t, func() bool { // on a slow machine the time can be over before a packet is sent
		assert.Error(t, dial(t, from, host, port, patience.Brief), "%s %s", host, port)
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

// listen accepts connections of TCP to ports in a namespace.
func listen(t *testing.T, ns netns.NsHandle, ports ...string) {
	for _, port := range ports {
		require.NoError(t, links.Inside(ns, func() error {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+port)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}))
	}
}

// dial opens a connection of TCP from a namespace, and closes it.
func dial(t *testing.T, from netns.NsHandle, host, port string, within time.Duration) error {
	return links.Inside(from, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}
