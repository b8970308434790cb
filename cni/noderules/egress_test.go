package noderules

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
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
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
		t.Skip("needs root; make test runs it")
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
	out, err := namespace.Output(exec.Command(args[0], args[1:]...))
	require.NoError(r.t, err)
	return out
}

var counted = regexp.MustCompile(`packets \d+`)

// seen waits until the outside has seen so many packets from the pod, and from the egress address.
func (r *router) seen(pod, egress string) {
	r.t.Helper()
	want := []string{"packets " + pod, "packets " + egress}
	for deadline := time.Now().Add(patience.Patience); ; <-time.After(time.Millisecond) { // a packet can wait for the address of a neighbour
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
	w := Wanted{
		IPv4:   Family{Source: netip.MustParseAddr("100.96.0.2"), Nodes: netip.MustParsePrefix("100.96.0.0/16")},
		Egress: []EgressWay{{Link: "coe-eg1-2", Address: netip.MustParseAddr(egressAddress), Owner: true}},
	}
	for _, want := range []bool{true, false} {
		changed, err := w.PutFences(r.ns)
		require.NoError(t, err)
		require.Equal(t, want, changed)
		if want {
			r.send("2")
			r.seen("2", "0")
		}
		changed, err = w.PutRules(r.ns)
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
	_, err := w.PutRules(r.ns)
	require.NoError(t, err)
	r.send("5")
	r.seen("2", "2")

	for _, want := range []bool{true, false} {
		changed, err := Wanted{}.PutFences(r.ns)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	require.NotContains(t, r.run("ip", "-n", r.node, "rule"), "206")
}
