package links_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

const port = "tap0a1b2c3d-4e"

func pair(t *testing.T, address, gateway string) links.Pair {
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	mac, err := net.ParseMAC("0a:58:0a:2a:00:02")
	require.NoError(t, err)
	p := links.Pair{
		Node: namespace.New(t), Pod: namespace.New(t), Port: port, Owner: "test/c1/eth0", Name: "eth0", MAC: mac, MTU: 1400,
		Addresses: []netip.Prefix{netip.MustParsePrefix(address)}, SoftwareChecksums: true,
	}
	if gateway != "" {
		p.Routes = links.DefaultRoutes(p.Addresses[0], netip.MustParseAddr(gateway))
	}
	return p
}

func handle(t *testing.T, ns netns.NsHandle) *netlink.Handle {
	h, err := netlink.NewHandleAt(ns)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func TestAdd(t *testing.T) {
	for _, c := range []struct{ name, address, gateway string }{
		{"a block", "10.42.0.2/29", "10.42.0.1"},
		{"an address by itself", "10.11.2.28/32", "169.254.1.1"},
		{"IPv6", "fd00::2/120", "fd00::1"},
		{"an address of IPv6 by itself", "fd00::2/128", "fd01::1"},
		{"no route", "10.42.0.2/29", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pair(t, c.address, c.gateway)
			require.NoError(t, links.Add(t.Context(), p))
			is, err := links.Look(p.Pod, "eth0")
			require.NoError(t, err)
			require.Equal(t, p.MAC, is.MAC)
			require.Equal(t, 1400, is.MTU)
			require.True(t, is.Up)
			require.Equal(t, p.Addresses, is.Addresses)
			for _, r := range p.Routes {
				require.Contains(t, is.Routes, r)
			}
			reads(t, p.Pod, "ipv6/conf/eth0/accept_ra", "0")
			node, err := links.Glance(p.Node, port)
			require.NoError(t, err)
			require.True(t, node.Up)
			require.Equal(t, 1400, node.MTU)
			owned, err := links.Owned(p.Node)
			require.NoError(t, err)
			require.Equal(t, map[string]string{port: "test/c1/eth0"}, owned)

			require.NoError(t, links.Delete(p.Node, port))
			_, err = links.Look(p.Pod, "eth0")
			require.ErrorIs(t, err, links.ErrNotFound, "both ends go")
			require.NoError(t, links.Delete(p.Node, port), "again")
		})
	}
}

// A pair that is not configured yet carries no traffic, and is removed as a whole.
func TestMake(t *testing.T) {
	p := pair(t, "10.42.0.2/29", "10.42.0.1")
	require.NoError(t, links.Make(p))
	node, err := links.Glance(p.Node, port)
	require.NoError(t, err)
	require.True(t, node.Up)
	is, err := links.Look(p.Pod, "eth0")
	require.NoError(t, err)
	require.Equal(t, links.Link{MAC: p.MAC, MTU: 1400}, is)
	require.NoError(t, links.Delete(p.Node, port))
	_, err = links.Glance(p.Pod, "eth0")
	require.ErrorIs(t, err, links.ErrNotFound)
}

// A runtime may have disabled IPv6 in the pod.
func TestIPv6IsAllowed(t *testing.T) {
	p := pair(t, "fd00::2/120", "fd00::1")
	inNamespace(t, p.Pod, func() {
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	})
	require.NoError(t, links.Add(t.Context(), p))
}

// A kernel without IPv6 has no settings of it.
func TestKernelWithoutIPv6(t *testing.T) {
	p := pair(t, "10.42.0.2/29", "10.42.0.1")
	p.Settings = links.Settings(t.TempDir())
	require.NoError(t, links.Add(t.Context(), p))
	p = pair(t, "fd00::2/120", "fd00::1")
	p.Settings = links.Settings(t.TempDir())
	require.ErrorContains(t, links.Add(t.Context(), p), "configure IPv6")
}

// A mount of the settings shows each thread the settings of its network namespace.
func TestSettingsAtAMount(t *testing.T) {
	p := pair(t, "fd00::2/120", "fd00::1")
	mount := t.TempDir()
	require.NoError(t, unix.Mount(string(links.DefaultSettings), mount, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(mount, 0)) })
	p.Settings = links.Settings(mount)
	require.NoError(t, p.Settings.Writable())

	inNamespace(t, p.Pod, func() {
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	})
	require.NoError(t, links.Add(t.Context(), p))
	reads(t, p.Pod, "ipv6/conf/eth0/disable_ipv6", "0")
	reads(t, p.Pod, "ipv6/conf/eth0/accept_ra", "0")

	const forward = "ipv4/ip_forward"
	for ns, value := range map[netns.NsHandle]string{p.Node: "1", p.Pod: "0"} {
		_, err := p.Settings.Put(ns, forward, value)
		require.NoError(t, err)
	}
	reads(t, p.Node, forward, "1")
	reads(t, p.Pod, forward, "0")
	changed, err := p.Settings.Put(p.Node, forward, "1")
	require.NoError(t, err)
	require.False(t, changed)

	require.NoError(t, unix.Mount("", mount, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	require.ErrorContains(t, p.Settings.Writable(), "read-only file system")
	_, err = p.Settings.Put(p.Node, forward, "0")
	require.ErrorContains(t, err, "set ipv4/ip_forward to 0")
	four := pair(t, "10.42.0.2/29", "10.42.0.1")
	four.Settings = p.Settings
	require.ErrorContains(t, links.Add(t.Context(), four), "mount the node's /proc/sys/net into the container of the agent writable, and name the mount with --net-settings")
}

// reads reads a setting where the kernel shows it.
func reads(t *testing.T, ns netns.NsHandle, name, value string) {
	t.Helper()
	inNamespace(t, ns, func() {
		is, err := os.ReadFile(filepath.Join(string(links.DefaultSettings), name))
		require.NoError(t, err)
		require.Equal(t, value+"\n", string(is), name)
	})
}

// A failure after any step leaves nothing behind.
func TestAddLeavesNothingBehind(t *testing.T) {
	for steps := range 5 {
		p := pair(t, "fd00::2/120", "fd00::1")
		err := links.Add(&failing{Context: t.Context(), after: steps}, p)
		if steps < 3 {
			require.ErrorIs(t, err, context.Canceled)
			_, err = links.Look(p.Node, port)
			require.ErrorIs(t, err, links.ErrNotFound)
			continue
		}
		require.NoError(t, err)
	}
	p := pair(t, "10.42.0.2/29", "10.42.0.1")
	p.Routes[0].Gateway = netip.MustParseAddr("10.99.0.1") // unreachable
	require.ErrorContains(t, links.Add(t.Context(), p), "route")
	_, err := links.Look(p.Node, port)
	require.ErrorIs(t, err, links.ErrNotFound)
}

// failing is a context that ends after a number of queries.
type failing struct {
	context.Context
	after int
}

func (f *failing) Err() error {
	if f.after == 0 {
		return context.Canceled
	}
	f.after--
	return nil
}

func TestOthersStay(t *testing.T) {
	p := pair(t, "10.42.0.2/29", "10.42.0.1")
	require.NoError(t, links.Add(t.Context(), p))
	again := p
	again.Port = "tap0a1b2c3d-4f"
	require.ErrorContains(t, links.Add(t.Context(), again), "file exists", "the pod has an eth0")
	again.Name = "net1"
	require.ErrorContains(t, links.Add(t.Context(), again), "add route to 0.0.0.0/0", "the pod has a default route")
	again.Routes = nil
	require.NoError(t, links.Add(t.Context(), again))

	h := handle(t, p.Node)
	other := netlink.NewVeth(netlink.LinkAttrs{Name: "tapffffffff-ff"})
	other.PeerName = "tapffffffff-fe"
	require.NoError(t, h.LinkAdd(other))
	owned, err := links.Owned(p.Node)
	require.NoError(t, err)
	require.Len(t, owned, 2, "the link of another program is not ours")
}

// Two links of a pod can have the same gateway outside of their subnets. Only one of them has the default route.
func TestGatewayOfTwoLinks(t *testing.T) {
	for _, c := range [][3]string{{"10.42.0.2/32", "10.42.0.3/32", "10.42.0.1"}, {"fd00::2/128", "fd00::3/128", "fd00::1"}} {
		first := pair(t, c[0], c[2])
		require.NoError(t, links.Add(t.Context(), first))
		further := first
		further.Port, further.Name = "tap0a1b2c3d-4f", "net1"
		further.Addresses = []netip.Prefix{netip.MustParsePrefix(c[1])}
		beyond := netip.MustParsePrefix("192.0.2.0/24")
		if further.Addresses[0].Addr().Is6() {
			beyond = netip.MustParsePrefix("2001:db8::/32")
		}
		further.Routes = []links.Route{first.Routes[0], {Destination: beyond, Gateway: first.Routes[1].Gateway}}
		require.NoError(t, links.Add(t.Context(), further))
		for name, want := range map[string][]links.Route{first.Name: first.Routes, further.Name: further.Routes} {
			is, err := links.Look(first.Pod, name)
			require.NoError(t, err)
			require.Subset(t, is.Routes, want, name)
		}
	}
}

func TestMTUOf(t *testing.T) {
	p := pair(t, "10.42.0.2/29", "")
	require.NoError(t, links.Add(t.Context(), p))
	mtu, err := links.MTUOf(p.Pod, netip.MustParseAddr("10.42.0.2"))
	require.NoError(t, err)
	require.Equal(t, 1400, mtu)
	_, err = links.MTUOf(p.Pod, netip.MustParseAddr("10.42.0.3"))
	require.ErrorContains(t, err, "no link has this address")
}

// An announcement arrives at the node's end.
func TestAnnounce(t *testing.T) {
	p := pair(t, "10.42.0.2/29", "")
	p.Addresses = append(p.Addresses, netip.MustParsePrefix("fd00::2/120"))
	require.NoError(t, links.Add(t.Context(), p))
	var socket int
	inNamespace(t, p.Node, func() { socket = listen(t) })
	t.Cleanup(func() { _ = unix.Close(socket) })
	require.NoError(t, links.Announce(p.Pod, "eth0", p.MAC, []netip.Addr{p.Addresses[0].Addr(), p.Addresses[1].Addr()}))
	arp, advertisement := false, false
	for !arp || !advertisement {
		frame := make([]byte, 2048)
		n, _, err := unix.Recvfrom(socket, frame, 0)
		require.NoError(t, err, "before the socket's timeout")
		frame = frame[:n]
		switch binary.BigEndian.Uint16(frame[12:]) {
		case unix.ETH_P_ARP:
			arp = bytes.Equal(frame[28:32], []byte{10, 42, 0, 2}) && bytes.Equal(frame[38:42], []byte{10, 42, 0, 2})
			require.Equal(t, []byte(p.MAC), frame[22:28])
		case unix.ETH_P_IPV6:
			advertisement = advertisement || frame[54] == 136
		}
	}
}

// listen opens a socket that receives every frame with a timeout.
func listen(t *testing.T) int {
	every := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(every))
	require.NoError(t, err)
	require.NoError(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	return socket
}

// inNamespace calls f on a thread in a namespace.
func inNamespace(t *testing.T, ns netns.NsHandle, f func()) {
	runtime.LockOSThread()
	home, err := netns.Get()
	require.NoError(t, err)
	require.NoError(t, netns.Set(ns))
	f()
	require.NoError(t, netns.Set(home))
	require.NoError(t, home.Close())
	runtime.UnlockOSThread()
}

// Only the routes that the package has made are replaced.
func TestPutDirect(t *testing.T) {
	p := pair(t, "10.99.0.2/32", "10.99.0.1")
	p.Addresses = append(p.Addresses, netip.MustParsePrefix("fd99::2/128"))
	require.NoError(t, links.Add(t.Context(), p))
	h := handle(t, p.Pod)
	link, err := h.LinkByName("eth0")
	require.NoError(t, err)
	other := netip.MustParsePrefix("10.97.0.0/24")
	require.NoError(t, h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: links.IPNet(other), Scope: unix.RT_SCOPE_LINK}))
	gateway, subnets := netip.MustParsePrefix("10.99.0.1/32"), []netip.Prefix{netip.MustParsePrefix("10.98.0.0/24"), netip.MustParsePrefix("fd98::/64")}
	direct := func() (all []netip.Prefix) {
		is, err := links.Look(p.Pod, "eth0")
		require.NoError(t, err)
		for _, r := range is.Routes {
			if d := r.Destination; !r.Gateway.IsValid() && (d.Addr().Is4() || d == subnets[1]) {
				all = append(all, d)
			}
		}
		return all
	}
	for range 2 {
		require.NoError(t, links.PutDirect(p.Pod, "eth0", append([]netip.Prefix{gateway, other}, subnets...)))
		require.ElementsMatch(t, append([]netip.Prefix{gateway, other}, subnets...), direct())
	}
	require.NoError(t, links.PutDirect(p.Pod, "eth0", []netip.Prefix{gateway}))
	require.ElementsMatch(t, []netip.Prefix{gateway, other}, direct())
	require.ErrorContains(t, links.PutDirect(p.Pod, "eth1", nil), "change the routes of link eth1")
}

// TestPodWithManyRoutes: a pod that may change its network can have any number of routes. The agent reads those by its link, and a limited
// number of them.
func TestPodWithManyRoutes(t *testing.T) {
	p := pair(t, "10.99.0.2/32", "10.99.0.1")
	require.NoError(t, links.Add(t.Context(), p))
	add := func(count, network int, by string, protocol int) {
		t.Helper()
		batch := strings.Builder{}
		batch.WriteString("link set lo up\n")
		for i := range count {
			_, _ = fmt.Fprintf(&batch, "route add %d.0.%d.%d/32 %s proto %d\n", network, i>>8, i&0xff, by, protocol)
		}
		require.NoError(t, links.Inside(p.Pod, func() error {
			ip := exec.CommandContext(t.Context(), "ip", "-batch", "-")
			ip.Stdin = strings.NewReader(batch.String())
			return ip.Run()
		}))
	}
	const many = 10_001
	add(1, 20, "dev eth0", links.Protocol)
	add(many, 21, "via 10.99.0.1 dev eth0 table 7", links.Protocol)
	add(many, 22, "dev lo", links.Protocol)
	one := links.Route{Destination: netip.MustParsePrefix("20.0.0.0/32")}
	is, err := links.Look(p.Pod, "eth0")
	require.NoError(t, err)
	require.Contains(t, is.Routes, one)
	require.NoError(t, links.PutDirect(p.Pod, "eth0", []netip.Prefix{netip.MustParsePrefix("10.99.0.1/32")}))
	is, err = links.Look(p.Pod, "eth0")
	require.NoError(t, err)
	require.NotContains(t, is.Routes, one)
	require.Subset(t, is.Routes, p.Routes)

	add(many, 23, "via 10.99.0.1 dev eth0", unix.RTPROT_BGP)
	require.NoError(t, links.PutDirect(p.Pod, "eth0", []netip.Prefix{netip.MustParsePrefix("10.99.0.1/32")}))
	add(many, 20, "dev eth0", links.Protocol)
	const refused = "it has more than 10000 routes by the link"
	_, err = links.Look(p.Pod, "eth0")
	require.ErrorContains(t, err, refused)
	require.ErrorContains(t, links.PutDirect(p.Pod, "eth0", nil), refused)
}
