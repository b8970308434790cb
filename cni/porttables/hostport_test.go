package porttables_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// hosting is place, on which pods may have host ports.
var hosting = func() nodeports.Place {
	at := place
	at.IPv4.Node, at.HostPorts = netip.MustParseAddr(management), true
	return at
}()

// host returns a host port of a pod, at an address of the node, "" for all.
func host(address, protocol string, number uint16, pod string) nodeports.HostPort {
	p := nodeports.HostPort{Address: netip.IPv4Unspecified(), Protocol: protocol, Number: number, Pod: netip.AddrPortFrom(netip.MustParseAddr(pod), 8080)}
	if address != "" {
		p.Address = netip.MustParseAddr(address)
	}
	return p
}

// TestHostPorts: clients outside the cluster, other nodes, pods and the node's programs reach a pod by its host
// ports. Pods with different addresses or protocols share a port.
func TestHostPorts(t *testing.T) { eachFamily(t, testHostPorts) }

func testHostPorts(w *world) {
	t := w.T
	w.run(w.node, "ip addr add 192.0.2.9/24 dev eth0; sysctl -q -w net.ipv4.conf.coe0.route_localnet=1")
	ports := serving{Hosts: []nodeports.HostPort{
		host("", "tcp", 8080, pod1), host("", "udp", 8080, pod2),
		host("127.0.0.1", "tcp", 9000, pod1), host(node, "tcp", 9000, pod2), host(node, "udp", 9000, pod1),
	}}
	w.syncAll(true, hosting, ports)
	w.syncAll(false, hosting, ports)
	for _, c := range []struct {
		network, pod string
	}{{"tcp", pod1}, {"udp", pod2}} {
		answer := c.pod + ":8080 "
		for _, at := range []string{node, "192.0.2.9"} {
			w.answers(w.outside, client, c.network, at+":8080", answer+client)
			w.answers(w.outside, other, c.network, at+":8080", answer+edge)
		}
		w.answers(w.pods, "10.42.0.9", c.network, management+":8080", answer+edge)
		for _, at := range []string{node, "192.0.2.9", management} {
			w.answers(w.node, "", c.network, at+":8080", answer+management)
		}
	}
	_, err := w.ask(w.node, "", "tcp", "127.0.0.1:8080")
	require.ErrorContains(t, err, "refused", "only a port of a loopback address answers there")
	w.answers(w.outside, client, "tcp", node+":9000", pod2+":8080 "+client)
	w.answers(w.outside, client, "udp", node+":9000", pod1+":8080 "+client)
	if !w.six { // Linux leads packets from loopback addresses elsewhere only by IPv4
		w.answers(w.node, "", "tcp", "127.0.0.1:9000", pod1+":8080 "+management)
		w.answers(w.node, node, "tcp", "127.0.0.1:9000", pod1+":8080 "+management)
	}
	for _, elsewhere := range []string{"192.0.2.9:9000", node + ":9001"} {
		_, err := w.ask(w.outside, client, "tcp", elsewhere)
		require.ErrorContains(t, err, "refused", elsewhere)
	}

	unknown := serving{HostsUnknown: true}
	again := porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	changed, err := w.syncTable(again, hosting, unknown)
	require.NoError(t, err)
	require.False(t, changed, "unknown host ports stay")
	w.run(w.node, "nft add table ip others")
	changed, err = w.syncTable(again, hosting, serving{})
	require.NoError(t, err)
	require.True(t, changed, "they are known, and there are none")
	w.syncAll(true, hosting, ports)
	w.run(w.node, "nft delete table ip others")
	unknown.Services = []nodeports.Port{cluster("tcp", 30080)}
	w.syncAll(true, hosting, unknown)
	w.answers(w.outside, client, "tcp", node+":8080", pod1+":8080 "+client)
	w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)

	w.syncAll(true, hosting, serving{})
	_, err = w.ask(w.outside, client, "tcp", node+":8080")
	require.ErrorContains(t, err, "refused")
	require.Empty(t, w.run(w.node, "nft list ruleset"))
	w.syncAll(false, place, ports) // no pod may have host ports there
}

// TestHostPortsTakeNothing: a service and a program of the node keep their ports.
func TestHostPortsTakeNothing(t *testing.T) { eachFamily(t, testHostPortsTakeNothing) }

func testHostPortsTakeNothing(w *world) {
	t := w.T
	w.withExternal()
	listen := w.listen(w.node, "tcp4", ":8081")
	w.serveIn(w.node, "0.0.0.0:8082")
	taken := serving{
		Services: []nodeports.Port{cluster("tcp", 30080), at(external, cluster("tcp", 80))},
		Hosts: []nodeports.HostPort{
			host("", "tcp", 30080, pod1), host("", "tcp", 80, pod1), host("", "tcp", 8081, pod1), host("", "tcp", 8082, pod1), host("", "udp", 8082, pod1), host("", "tcp", 9000, pod1),
			host(external, "tcp", 9000, pod1),
		},
	}
	w.run(w.node, "ip addr add "+external+"/32 dev lo")
	w.syncAll(true, hosting, taken)
	w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	w.answers(w.outside, client, "tcp", external+":80", service+":80 "+client)
	w.answers(w.outside, client, "tcp", node+":80", pod1+":8080 "+client)
	w.answers(w.node, "", "tcp", node+":80", pod1+":8080 "+management)
	for _, ns := range []netns.NsHandle{w.outside, w.node} {
		_, err := w.dial(ns, "", "tcp", external+":9000")
		require.ErrorContains(t, err, "refused", "a port of the address that the service does not have")
	}
	w.answers(w.outside, client, "tcp", node+":8082", "0.0.0.0:8082 "+client)
	w.answers(w.outside, client, "udp", node+":8082", "0.0.0.0:8082 "+client)
	require.NoError(t, listen.Close())
	w.answers(w.outside, client, "tcp", node+":8081", pod1+":8080 "+client)
}

// TestLoopbackStaysInside: packets from elsewhere do not reach a host port at a loopback address, nor programs of
// the node that listen there, although the link to the pod network accepts such addresses.
func TestLoopbackStaysInside(t *testing.T) {
	w := newWorld(t)
	w.run(w.node, "sysctl -q -w net.ipv4.conf.coe0.route_localnet=1")
	w.serveIn(w.node, "127.0.0.1:8082")
	w.run(w.outside, "ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1 via "+node+" dev eth0 src "+client+"; sysctl -q -w net.ipv4.conf.eth0.route_localnet=1")
	w.run(w.pods, "ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1 via "+management+"; sysctl -q -w net.ipv4.conf.eth0.route_localnet=1")
	w.syncAll(true, hosting, serving{Hosts: []nodeports.HostPort{host("127.0.0.1", "tcp", 9000, pod1), host("", "tcp", 8080, pod1)}})
	for _, port := range []string{"8080", "8082", "9000"} {
		w.silent(w.outside, client, "127.0.0.1:"+port)
		w.silent(w.pods, "10.42.0.9", "127.0.0.1:"+port)
	}
	w.answers(w.node, "", "tcp", "127.0.0.1:9000", pod1+":8080 "+management)

	w.serveIn(w.node, management+":8083")
	w.run(w.pods, "ip addr add 127.0.0.2/32 dev lo")
	w.silent(w.pods, "127.0.0.2", management+":8083")
}

// TestChangedUDPHostPorts: a client that keeps sending reaches the pod that has the port now, and nobody once it is
// gone.
func TestChangedUDPHostPorts(t *testing.T) {
	eachFamily(t, func(w *world) {
		t := w.T
		for _, address := range []string{"", node} {
			conn, err := w.dial(w.outside, client, "udp", node+":8080")
			require.NoError(t, err)
			for _, pod := range []string{pod1, pod2} {
				w.syncAll(true, hosting, serving{Hosts: []nodeports.HostPort{host(address, "udp", 8080, pod)}})
				got, err := answer(conn, patience.Patience)
				require.NoError(t, err)
				require.Equal(t, w.text(pod+":8080 "+client), got)
			}
			w.syncAll(true, hosting, serving{})
			require.Zero(t, w.connections(node))
			require.NoError(t, conn.Close())
		}
	})
}

// TestInvalidHostPorts: an invalid host port, or one of two pods, is an error, and the others are served.
func TestInvalidHostPorts(t *testing.T) {
	w := newWorld(t)
	good := host("", "tcp", 8080, pod1)
	six := good
	six.Address = netip.MustParseAddr("::") // and the pod's is of IPv4
	for _, bad := range []nodeports.HostPort{
		{}, six, host("", "icmp", 1, pod1), host("", "tcp", 0, pod1), host("", "tcp", 1, "fd00::1"), host("", "tcp", 8080, pod2),
	} {
		_, err := w.syncing(hosting, serving{Hosts: []nodeports.HostPort{good, bad}})
		require.ErrorContains(t, err, bad.String())
		require.True(t, w.table.Current())
		w.answers(w.outside, client, "tcp", node+":8080", pod1+":8080 "+client)
	}
}

// TestCheckHostPort: a port is refused if a program of the node listens on it, or if the node does not have its
// address.
func TestCheckHostPort(t *testing.T) {
	w := newWorld(t)
	w.listen(w.node, "tcp4", "0.0.0.0:22")
	w.listen(w.node, "tcp", "[::]:6443")
	w.listen(w.node, "tcp4", "127.0.0.1:10248")
	w.listen(w.node, "tcp6", "[::1]:7000")
	w.run(w.node, "ip addr add fd00::1/64 dev eth0 nodad")
	const six = "fd00::1"
	w.serveIn(w.node, node+":53")
	connected, err := w.dial(w.node, "", "udp", client+":1")
	require.NoError(t, err)
	defer func() { _ = connected.Close() }()
	own := uint16(connected.LocalAddr().(*net.UDPAddr).Port)
	for _, c := range []struct {
		port nodeports.HostPort
		says string // "" if it is free
	}{
		{host("", "tcp", 22, pod1), "host port tcp 0.0.0.0:22: a program of the node listens on 0.0.0.0:22"},
		{host(node, "tcp", 22, pod1), "a program of the node listens on 0.0.0.0:22"},
		{host("", "udp", 22, pod1), ""},
		{host("", "sctp", 22, pod1), ""},
		{host(node, "tcp", 6443, pod1), "a program of the node listens on [::]:6443"},
		{host("", "tcp", 10248, pod1), "a program of the node listens on 127.0.0.1:10248"},
		{host(node, "tcp", 10248, pod1), ""},
		{host("", "tcp", 7000, pod1), ""},
		{host("", "tcp", 53, pod1), "a program of the node listens on " + node + ":53"},
		{host("", "udp", 53, pod1), "a program of the node listens on " + node + ":53"},
		{host(management, "udp", 53, pod1), ""},
		{host("", "udp", own, pod1), ""},
		{host(client, "tcp", 8080, pod1), "the node has no address " + client},
		{host("::", "tcp", 22, pod1), ""},
		{host("::", "tcp", 6443, pod1), "host port tcp [::]:6443: a program of the node listens on [::]:6443"},
		{host(six, "tcp", 6443, pod1), "a program of the node listens on [::]:6443"},
		{host("::", "tcp", 7000, pod1), "a program of the node listens on [::1]:7000"},
		{host(six, "tcp", 7000, pod1), ""},
		{host("::", "udp", 53, pod1), ""},
		{host("fd00::2", "tcp", 8080, pod1), "the node has no address fd00::2"},
	} {
		err := porttables.CheckHostPorts(w.node, []nodeports.HostPort{host(node, "tcp", 1, pod1), c.port})
		if c.says == "" {
			require.NoError(t, err, c.port)
		} else {
			require.ErrorContains(t, err, c.says)
		}
	}
}

// listen listens in a namespace, and answers nobody.
func (w *world) listen(ns netns.NsHandle, network, at string) (listener net.Listener) {
	w.Helper()
	require.NoError(w, links.Inside(ns, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), w.network(network), w.text(at))
		return err
	}))
	w.Cleanup(func() { _ = listener.Close() })
	return listener
}
