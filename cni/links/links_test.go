package links_test

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

const port = "tap0a1b2c3d-4e"

// namespace makes a network namespace without a name, which goes with the test.
func namespace(t *testing.T) netns.NsHandle {
	runtime.LockOSThread()
	home, err := netns.Get()
	require.NoError(t, err)
	ns, err := netns.New()
	require.NoError(t, err, "a network namespace needs root")
	require.NoError(t, netns.Set(home))
	require.NoError(t, home.Close())
	runtime.UnlockOSThread()
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func pair(t *testing.T) links.Pair {
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	mac, err := net.ParseMAC("0a:58:0a:2a:00:02")
	require.NoError(t, err)
	return links.Pair{
		Node: namespace(t), Pod: namespace(t), Port: port, Name: "eth0", MAC: mac, MTU: 1400,
		Address: netip.MustParsePrefix("10.42.0.2/29"), Gateway: netip.MustParseAddr("10.42.0.1"),
	}
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
		{"no route", "10.42.0.2/29", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pair(t)
			p.Address, p.Gateway = netip.MustParsePrefix(c.address), netip.Addr{}
			if c.gateway != "" {
				p.Gateway = netip.MustParseAddr(c.gateway)
			}
			require.NoError(t, links.Add(p))
			h := handle(t, p.Pod)
			link, err := h.LinkByName("eth0")
			require.NoError(t, err)
			require.Equal(t, p.MAC, link.Attrs().HardwareAddr)
			require.Equal(t, 1400, link.Attrs().MTU)
			routes, err := h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
			require.NoError(t, err)
			var gateways []string
			for _, r := range routes {
				if r.Gw != nil {
					gateways = append(gateways, r.Gw.String())
				}
			}
			if c.gateway == "" {
				require.Empty(t, gateways)
			} else {
				require.Equal(t, []string{c.gateway}, gateways)
			}
			node, err := handle(t, p.Node).LinkByName(port)
			require.NoError(t, err)
			require.NotZero(t, node.Attrs().Flags&net.FlagUp)

			require.NoError(t, links.Delete(p.Node, port))
			_, err = h.LinkByName("eth0")
			require.Error(t, err, "both ends go")
			require.NoError(t, links.Delete(p.Node, port), "again")
		})
	}
}

func TestAddLeavesNothingBehind(t *testing.T) {
	p := pair(t)
	p.Gateway = netip.MustParseAddr("224.0.0.5") // no next hop
	require.ErrorContains(t, links.Add(p), "route")
	_, err := handle(t, p.Node).LinkByName(port)
	require.ErrorAs(t, err, new(netlink.LinkNotFoundError))
	require.NoError(t, links.Add(pair(t)))
}
