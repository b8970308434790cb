package node

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/noderules"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	bridge "github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const podAddress, egressAddress, outsideAddress = "10.42.0.2", "192.0.2.200", "192.0.2.1"

// The bridge learns how many packets have come in by the link of a port.
func TestPacketsOfLinks(t *testing.T) {
	node, onNode := namespace.WithShell(t)
	pod, onPod := namespace.WithShell(t)
	h, err := netlink.NewHandleAt(node)
	require.NoError(t, err)
	defer h.Close()
	onPod("sysctl -qw net.ipv6.conf.default.disable_ipv6=1") // nothing but what the pod sends comes in
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "coe-eg1-2"})
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(pod)
	require.NoError(t, h.LinkAdd(veth))
	onNode("ip link set lo up; ip addr add 192.0.2.10/32 dev lo; ip link set coe-eg1-2 up; ip addr add 10.42.0.1/24 dev coe-eg1-2")
	onPod("ip link set eth0 up; ip addr add " + podAddress + "/24 dev eth0")
	mac := func(link string, run func(string) string) string {
		return strings.TrimSpace(run("ip -o link show dev " + link + " | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
	}
	onNode("ip neigh replace " + podAddress + " lladdr " + mac("eth0", onPod) + " dev coe-eg1-2 nud permanent")
	onPod("ip neigh replace 10.42.0.1 lladdr " + mac("coe-eg1-2", onNode) + " dev eth0 nud permanent")
	const number, port = 1, 9177
	part := &uplink.Egress{Addresses: []uplink.EgressAddress{{
		Name: netvirt.EgressPortName(number, 0), Number: number, NextHop: netvirt.EgressNextHop(number, 0), MAC: netvirt.EgressMAC(number, 0),
		Egress: netip.MustParseAddr(egressAddress),
	}}}
	at, key := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port), []byte("key")
	s := egress.New(node)
	t.Cleanup(s.Close)
	require.NoError(t, s.Sync(at, key, egress.State{Links: linksOf(part)}))
	var answer bridge.Answer
	count := func() uint64 {
		require.Eventually(t, func() bool { // on a busy machine an answer can come too late
			err := links.Inside(node, func() error {
				answer = bridge.Ask(t.Context(), bridge.Question{Node: at.Addr(), Port: port, Key: key, Count: true})
				return nil
			})
			return err == nil && answer.Answered
		}, patience.Patience, time.Millisecond)
		require.Len(t, answer.Received, 1)
		return answer.Received[part.Addresses[0].Name]
	}
	first := count()
	for sent := range uint64(3) {
		require.Equal(t, first+sent, count())
		onPod("bash -c 'echo > /dev/udp/10.42.0.1/1'")
	}
	require.Equal(t, first+3, count())
}

// Answers that came in before the node got a port are forgotten, so that connections that move to it keep their port.
func TestStrayConnections(t *testing.T) {
	ns, _ := namespace.WithShell(t)
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_NETFILTER)
	require.NoError(t, err)
	defer h.Close()
	ip := func(text string) net.IP { return net.ParseIP(text).To4() }
	flow := func(from, to, of, translated string) {
		require.NoError(t, h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{
			FamilyType: unix.AF_INET, TimeOut: 100,
			Forward: netlink.IPTuple{SrcIP: ip(from), DstIP: ip(to), SrcPort: 1000, DstPort: 80, Protocol: unix.IPPROTO_UDP},
			Reverse: netlink.IPTuple{SrcIP: ip(of), DstIP: ip(translated), SrcPort: 80, DstPort: 1000, Protocol: unix.IPPROTO_UDP},
		}))
	}
	flow(outsideAddress, egressAddress, egressAddress, outsideAddress)
	flow("192.0.2.2", egressAddress, podAddress, "192.0.2.2")
	flow(podAddress, outsideAddress, outsideAddress, egressAddress)
	w := wanted{Wanted: noderules.Wanted{Egress: []noderules.EgressWay{{Link: "coe-eg1-2", Address: netip.MustParseAddr(egressAddress)}}}}
	n := &Node{cfg: Config{Netns: ns}}
	forget := func(link string, left int) []*netlink.ConntrackFlow {
		require.NoError(t, n.forgetStray(w, pair{link: link}))
		all, err := h.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		require.NoError(t, err)
		require.Len(t, all, left)
		return all
	}
	forget("coe-eg2-2", 3)
	for _, f := range forget("coe-eg1-2", 2) {
		require.False(t, f.Forward.DstIP.Equal(ip(egressAddress)) && f.Reverse.SrcIP.Equal(ip(egressAddress)))
	}
}
