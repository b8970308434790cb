package node

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/egress"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
	bridge "github.com/coe-bridge/coe-bridge/coe/egress"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// router is a node that translates to an egress address, between a pod and an outside, each in a network namespace.
type router struct {
	t                  *testing.T
	pod, node, outside string
	ns                 netns.NsHandle // node's
}

const podAddress, egressAddress, outsideAddress = "10.42.0.2", "192.0.2.200", "192.0.2.1"

func newRouter(t *testing.T) *router {
	if testing.Short() {
		t.Skip("needs root")
	}
	name := "coe-egress-test" + strings.TrimPrefix(t.TempDir(), os.TempDir())
	name = strings.NewReplacer("/", "", "TestEgressRules", "-").Replace(name)
	r := &router{t: t, pod: name + "-p", node: name + "-n", outside: name + "-o"}
	for _, ns := range []string{r.pod, r.node, r.outside} {
		r.run("ip", "netns", "add", ns)
		t.Cleanup(func() { r.run("ip", "netns", "del", ns) })
	}
	r.run("ip", "-n", r.pod, "link", "add", "eth0", "type", "veth", "peer", "name", "coe-eg1-2", "netns", r.node)
	r.run("ip", "-n", r.outside, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", r.node)
	for _, link := range [][3]string{
		{r.pod, "eth0", podAddress + "/24"}, {r.node, "coe-eg1-2", "10.42.0.1/24"}, {r.node, "eth0", "192.0.2.10/24"}, {r.outside, "eth0", outsideAddress + "/24"},
	} {
		r.run("ip", "-n", link[0], "addr", "add", link[2], "dev", link[1])
		r.run("ip", "-n", link[0], "link", "set", link[1], "up")
	}
	r.run("ip", "-n", r.pod, "route", "add", "default", "via", "10.42.0.1")
	r.run("ip", "netns", "exec", r.node, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	r.run("ip", "netns", "exec", r.outside, "nft", "add table ip t; add chain ip t in { type filter hook prerouting priority -300; };"+
		"add rule ip t in ip saddr "+podAddress+" counter; add rule ip t in ip saddr "+egressAddress+" counter")
	var err error
	r.ns, err = netns.GetFromName(r.node)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.ns.Close() })
	return r
}

func (r *router) run(args ...string) string {
	r.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(r.t, err, "%v: %s", args, out)
	return string(out)
}

var counted = regexp.MustCompile(`packets \d+`)

// seen waits until the outside has seen so many packets from the pod, and from the egress address.
func (r *router) seen(pod, egress string) {
	r.t.Helper()
	want := []string{"packets " + pod, "packets " + egress}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) { // a packet can wait for the address of a neighbour
		got := counted.FindAllString(r.run("ip", "netns", "exec", r.outside, "nft", "list", "chain", "ip", "t", "in"), -1)
		if slices.Equal(want, got) {
			return
		}
		require.True(r.t, time.Now().Before(deadline), "want %v, got %v", want, got)
	}
}

// send sends a datagram from the pod.
func (r *router) send(port string) {
	r.t.Helper()
	r.run("ip", "netns", "exec", r.pod, "bash", "-c", "echo > /dev/udp/"+outsideAddress+"/"+port)
}

// sendStray sends a TCP segment from the pod with flags that belong to no connection.
func (r *router) sendStray() {
	r.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	require.NoError(r.t, err)
	pod, err := netns.GetFromName(r.pod)
	require.NoError(r.t, err)
	require.NoError(r.t, netns.Set(pod))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	require.NoError(r.t, netns.Set(home))
	require.NoError(r.t, err)
	defer func() { _, _, _ = unix.Close(fd), pod.Close(), home.Close() }()
	const headerLength, synFinReset = 5 << 4, 0x07
	segment := []byte{0x9c, 0x40, 0x1f, 0x90, 0, 0, 0, 1, 0, 0, 0, 1, headerLength, synFinReset, 1, 0, 0, 0, 0, 0}
	require.NoError(r.t, unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(outsideAddress).To4())}))
}

// Packets that come in by a link of an egress address leave with this address or not at all: not if the kernel does not track
// them, and not if another program has removed the rules. The rules are written once, found again, and removed.
func TestEgressRules(t *testing.T) {
	r := newRouter(t)
	r.send("1")
	r.sendStray()
	r.seen("2", "0")
	w := wanted{
		ipv4:   family{source: netip.MustParseAddr("100.96.0.2"), nodes: netip.MustParsePrefix("100.96.0.0/16")},
		egress: []egressWay{{link: "coe-eg1-2", port: "coeg1-2", address: netip.MustParseAddr(egressAddress), owner: true}},
	}
	for _, want := range []bool{true, false} {
		changed, err := putFences(r.ns, w)
		require.NoError(t, err)
		require.Equal(t, want, changed)
		if want {
			r.send("2")
			r.seen("2", "0")
		}
		changed, err = putRules(r.ns, w)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	r.send("3")
	r.seen("2", "1")
	r.sendStray()
	r.seen("2", "1")

	r.run("ip", "netns", "exec", r.node, "nft", "flush", "ruleset")
	r.send("4")
	r.sendStray()
	r.seen("2", "1")
	_, err := putRules(r.ns, w)
	require.NoError(t, err)
	r.send("5")
	r.seen("2", "2")

	for _, want := range []bool{true, false} {
		changed, err := putFences(r.ns, wanted{})
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	require.NotContains(t, r.run("ip", "-n", r.node, "rule"), "206")
}

// The bridge learns how many packets have come in by the link of a port.
func TestPacketsOfLinks(t *testing.T) {
	r := newRouter(t)
	for _, command := range [][]string{ // nothing but what the pod sends comes in
		{"ip", "netns", "exec", r.pod, "sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=1"},
		{"ip", "-n", r.node, "link", "set", "lo", "up"},
		{"ip", "-n", r.pod, "neigh", "replace", "10.42.0.1", "lladdr", r.mac(r.node, "coe-eg1-2"), "dev", "eth0", "nud", "permanent"},
		{"ip", "-n", r.node, "neigh", "replace", podAddress, "lladdr", r.mac(r.pod, "eth0"), "dev", "coe-eg1-2", "nud", "permanent"},
	} {
		r.run(command...)
	}
	const number, port = 1, 9177
	part := &uplink.Egress{Addresses: []uplink.EgressAddress{{
		Name: netvirt.EgressPortName(number, 0), Number: number, NextHop: netvirt.EgressNextHop(number, 0), MAC: netvirt.EgressMAC(number, 0),
		Egress: netip.MustParseAddr(egressAddress),
	}}}
	at, key := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port), []byte("key")
	s := egress.New(r.ns)
	t.Cleanup(s.Close)
	require.NoError(t, s.Sync(at, key, egress.State{Links: linksOf(part)}))
	var answer bridge.Answer
	count := func() uint64 {
		require.Eventually(t, func() bool { // on a busy machine an answer can come too late
			err := links.Inside(r.ns, func() error {
				answer = bridge.Ask(t.Context(), bridge.Question{Node: at.Addr(), Port: port, Key: key, Count: true})
				return nil
			})
			return err == nil && answer.Answered
		}, time.Minute, time.Millisecond)
		require.Len(t, answer.Received, 1)
		return answer.Received[part.Addresses[0].Name]
	}
	first := count()
	for sent := range uint64(3) {
		require.Equal(t, first+sent, count())
		r.send("1")
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
	w := wanted{egress: []egressWay{{link: "coe-eg1-2", address: netip.MustParseAddr(egressAddress)}}}
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

// mac returns the MAC address of a link.
func (r *router) mac(ns, link string) string {
	r.t.Helper()
	return strings.TrimSpace(r.run("ip", "netns", "exec", ns, "cat", "/sys/class/net/"+link+"/address"))
}
