package nics

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A node that has not heard the bridge yet keeps its egress address, and neither adds nor announces it: another node may hold it. An address
// that no NIC can have is unfit.
func TestEgressAddressOfBefore(t *testing.T) {
	const egressAddress, freshFor = "192.0.2.200", 25 * time.Second
	node, onNode := namespace.WithShell(t)
	outside, onOutside := namespace.WithShell(t)
	h, err := netlink.NewHandleAt(node)
	require.NoError(t, err)
	defer h.Close()
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0"})
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(outside)
	require.NoError(t, h.LinkAdd(veth))
	onNode("ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up; ip link add coe0 type veth peer name coe0-port; ip addr add 198.51.100.1/24 dev coe0")
	onOutside("ip addr add 192.0.2.1/24 dev eth0; ip link set eth0 up")
	nic, err := h.LinkByName("eth0")
	require.NoError(t, err)

	n := New(Config{Netns: node, OfPods: func(link string) bool { return link == "coe0" }, FreshFor: freshFor})
	held := []netip.Addr{netip.MustParseAddr(egressAddress)}
	put := func(held []netip.Addr, heard time.Time) error {
		t.Helper()
		n.announced = time.Time{}
		done := n.Put(append(held, netip.MustParseAddr("198.51.100.2")), held, heard)
		require.NoError(t, done.Err)
		require.Equal(t, []netip.Addr{netip.MustParseAddr("198.51.100.2")}, done.Unfit)
		for _, address := range held {
			return done.Failed[address]
		}
		return nil
	}
	has := func(want bool) {
		t.Helper()
		require.Equal(t, want, strings.Contains(onNode("ip addr"), egressAddress+"/32"))
		require.Equal(t, want, n.Held() == 1)
	}
	const another = "0a:00:00:00:00:01"
	learn := func() {
		onOutside("ip neigh replace " + egressAddress + " lladdr " + another + " dev eth0 nud stale")
	}
	neighbour := func() string { return onOutside("ip neigh show " + egressAddress) }
	learn()
	require.ErrorIs(t, put(held, time.Time{}), ErrNotHeard)
	has(false)
	require.Contains(t, neighbour(), another)
	announced := func() bool { return strings.Contains(neighbour(), nic.Attrs().HardwareAddr.String()) }
	require.NoError(t, put(held, time.Now()))
	has(true)
	require.Eventually(t, announced, patience.Patience, 10*time.Millisecond)

	learn()
	for _, heard := range []time.Time{{}, time.Now().Add(-freshFor)} {
		require.NoError(t, put(held, heard))
		has(true)
		require.Contains(t, neighbour(), another)
	}
	require.NoError(t, put(held, time.Now()))
	require.Eventually(t, announced, patience.Patience, 10*time.Millisecond)
	require.NotZero(t, n.Next())

	changed, err := n.TakeLost(held)
	require.NoError(t, err)
	require.False(t, changed)
	has(true)
	require.NoError(t, put(nil, time.Time{}))
	has(false)
	require.Zero(t, n.Next())
}

// A node takes the addresses of a former process away that it does not hold.
func TestTakeLost(t *testing.T) {
	node, onNode := namespace.WithShell(t)
	onNode("ip link add eth0 type veth peer name peer0; ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up; ip addr add 192.0.2.200/32 dev eth0 scope 206" +
		"; ip addr add 192.0.2.201/32 dev eth0 scope 206; ip addr add 192.0.2.202/32 dev eth0")
	n := New(Config{Netns: node, OfPods: func(string) bool { return false }})
	changed, err := n.TakeLost([]netip.Addr{netip.MustParseAddr("192.0.2.201")})
	require.NoError(t, err)
	require.True(t, changed)
	left := onNode("ip -4 -o addr show dev eth0")
	require.NotContains(t, left, "192.0.2.200/")
	require.Contains(t, left, "192.0.2.201/")
	require.Contains(t, left, "192.0.2.202/")
}
