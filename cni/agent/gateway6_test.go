package agent_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// at6 is at for IPv6. The network has the prefix 2001:db8:N::/64, with the last number of its IPv4 prefix as N.
func (n network) at6(host int) string {
	four := netip.MustParseAddr(n.at(0)).As4()
	return fmt.Sprintf("2001:db8:%d::%d", four[2], host)
}

// linkLocalHop is the address of the router of a network that only its link has.
const linkLocalHop = "fe80::253"

// TestGatewayIPv6: by IPv6 pods leave by a gateway as by IPv4, if it has an IPv6 address, and by their node otherwise. The NIC of the
// gateway is its own, and then shared. Both layouts of OVN have it.
func TestGatewayIPv6(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		t.Run(string(layout), func(t *testing.T) {
			t.Parallel()
			w := dualWorld(t, "--node-network", "100.96.0.0/16,fd00:96::/64", "--ovn-layout", string(layout))
			six, pods := addresses6{}, map[string]*sandbox{}
			for i, host := range []string{"host1", "host2"} {
				pods[host] = six.run(w, host, i, "default", "pod-"+host)
			}
			w.eachNIC(func(gatewayNIC) {}, func(n gatewayNIC) { w.testGatewayIPv6(pods, six, n) })
		})
	}
}

func (w *world) testGatewayIPv6(pods map[string]*sandbox, six addresses6, north gatewayNIC) {
	t := w.t
	kernel := func(host string) string { return "outside " + w.address6(host) }
	gateway, four := north.name+" "+north.at6(ofGateway), north.init()
	before := w.state("host1")
	init := func(next string, more ...string) {
		t.Helper()
		w.mustGateway("configure gateway", "host1", append(north.init6(next), more...)...)
	}
	w.mustGateway("configure gateway", "host1", four...)
	w.seen(pods["host1"].inLab(), outside, 8080, north.name+" "+north.at(ofGateway))
	w.seen(pods["host1"].inLab(), outside6, 8080, kernel("host1"))
	_, err := w.gateway("host1", slices.Concat(four, []string{"--rampout-ip-subnets", "fd42::/120"})...)
	require.ErrorContains(t, err, "pinned-subnets has fd42::/120, and the gateway has no IPv6 address")

	for _, next := range []string{north.at6(ofNextHop), linkLocalHop} {
		w.step("the next hop is "+next, func() {
			init(next)
			w.seen(pods["host1"].inLab(), outside6, 8080, gateway)
			w.seen(pods["host1"].inLab(), outside, 8080, north.name+" "+north.at(ofGateway))
			w.seen(pods["host2"].inLab(), outside6, 8080, kernel("host2"))
			require.NoError(t, w.lab.Ping(t.Context(), north.name, netip.MustParseAddr(north.at6(ofGateway))))
		})
	}
	w.step("pods on other nodes are pinned", func() {
		init(linkLocalHop, "--rampout-ip-subnets", w.block("host2")+","+w.blockOf("host2", netip.Addr.Is6))
		w.seen(pods["host2"].inLab(), outside6, 8080, gateway)
		w.seen(pods["host2"].inLab(), outside, 8080, north.name+" "+north.at(ofGateway))
	})
	w.step("nodes and pods reach each other as before", func() {
		for host, p := range pods {
			four, _ := w.management(host)
			management := "fd00:96::" + four.String()[len("100.96.0."):]
			for _, to := range pods {
				w.seen(p.inLab(), six[to], 8080, to.name+" "+six[p])
				w.seen(host, six[to], 8080, to.name+" "+management)
				w.seen(to.inLab(), management, 8080, host+" "+six[to])
			}
			w.seen(host, outside6, 8080, kernel(host))
		}
	})
	w.step("nothing but answers comes in", func() { w.testOnlyAnswers6(north.network, pods["host1"], six) })
	w.step("remove", func() {
		w.mustGateway("changed", "host1", "remove")
		for host, p := range pods {
			w.seen(p.inLab(), outside6, 8080, kernel(host))
		}
		w.nothingIsLeft(before)
	})
}

// testOnlyAnswers6: the first datagram that a pod receives is of its node, and not those that a machine outside has sent
// before, also with the address of the node.
func (w *world) testOnlyAnswers6(north network, p *sandbox, six addresses6) {
	const spoofed = "fd00:96::2" // policies always allow the node of the pod
	to := netip.AddrPortFrom(netip.MustParseAddr(six[p]), 9)
	var receives net.PacketConn
	require.NoError(w.t, w.lab.In(p.inLab(), func() (err error) {
		receives, err = net.ListenPacket("udp6", ":9")
		return err
	}))
	defer func() { _ = receives.Close() }()
	require.NoError(w.t, receives.SetReadDeadline(time.Now().Add(converge)))
	w.ip(north.name, "addr", "add", spoofed+"/128", "dev", "lo")
	w.ip(north.name, "route", "add", "fd42::/64", "via", north.at6(ofGateway))
	require.NoError(w.t, w.lab.Ping(w.t.Context(), north.name, netip.MustParseAddr(north.at6(ofGateway))))
	send := func(from, source, text string) {
		require.NoError(w.t, w.lab.In(from, func() error {
			conn, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(source)}, net.UDPAddrFromAddrPort(to))
			if err == nil {
				_, err = conn.Write([]byte(text))
				err = errors.Join(err, conn.Close())
			}
			return err
		}))
	}
	for _, source := range []string{spoofed, north.at6(ofNextHop), spoofed} {
		send(north.name, source, "from outside")
	}
	require.NoError(w.t, w.lab.Ping(w.t.Context(), north.name, netip.MustParseAddr(north.at6(ofGateway))))
	send("host1", "", "from the node")
	buffer := make([]byte, 100)
	n, _, err := receives.ReadFrom(buffer)
	require.NoError(w.t, err)
	require.Equal(w.t, "from the node", string(buffer[:n]))
}
