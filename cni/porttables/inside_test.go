package porttables_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const podClient = "10.42.0.9"

// inside returns a port that leads only clients inside the cluster.
func inside(p nodeports.Port) nodeports.Port {
	p.Inside, p.Local = true, false
	return p
}

// newBalancing returns a world whose pod network does not balance, with the place of the node. Packets of pods to the node and to external
// addresses come in by a link of their own.
func newBalancing(t *testing.T) (*world, nodeports.Place) {
	w := newWorld(t)
	w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0", EgressLinks: "coe-*"})
	w.join(w.pods, "eth1", "100.97.0.1", w.node, "coe-web", "100.97.0.2")
	w.run(w.node, "sysctl -q -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.coe-web.rp_filter=2")
	w.run(w.pods, "ip route add 192.0.2.0/24 via 100.97.0.2; ip route add 198.51.100.0/24 via 100.97.0.2")
	w.withExternal()
	at := place
	at.Balances = true
	return w, at
}

// reached returns the answers that a client gets until it has got as many different ones, and no further ones come.
func (w *world) reached(from netns.NsHandle, source, at string, want int) []string {
	w.Helper()
	seen, since := map[string]bool{}, 0
	require.Eventually(w, func() bool {
		got, err := w.ask(from, source, "tcp", at)
		require.NoError(w, err)
		if since++; !seen[got] {
			seen[got], since = true, 0
		}
		return len(seen) >= want && since > 20
	}, patience.Patience, time.Millisecond)
	return slices.Sorted(maps.Keys(seen))
}

// Clients inside the cluster reach endpoints on all nodes by local ports, and clients outside those on the node alone. Endpoints on other nodes see
// an address of the node that answers come back to. A program that asks the address of the node is led where its own port says.
func TestInside(t *testing.T) {
	w, at := newBalancing(t)
	w.serveIn(w.outside, other+":30080")
	open := local("tcp", 30080, pod1)
	there := own(node, direct("tcp", 30080))
	there.Endpoints = []netip.AddrPort{netip.MustParseAddrPort(other + ":30080")}
	services := []nodeports.Port{
		open, at2(external, 80, pod1), local("tcp", 30081),
		inside(local("tcp", 30080, pod1, pod2)), inside(at2(external, 80, pod1, pod2)), inside(local("tcp", 30081, pod2)), there,
	}
	w.syncAll(true, at, serving{Services: services})
	w.syncAll(false, at, serving{Services: services})
	require.Equal(t, 3, w.table.Services())
	require.Equal(t, 1, w.table.Own())

	for _, asked := range []string{node + ":30080", management + ":30080", external + ":80"} {
		require.Equal(t, []string{pod1 + ":8080 " + edge, pod2 + ":8080 " + edge}, w.reached(w.pods, podClient, asked, 2), asked)
	}
	for _, asked := range []string{management + ":30080", external + ":80"} {
		require.Equal(t, []string{pod1 + ":8080 " + management, pod2 + ":8080 " + management}, w.reached(w.node, "", asked, 2), asked)
	}
	w.answers(w.node, node, "tcp", node+":30080", other+":30080 "+node)
	w.answers(w.node, "", "tcp", node+":30080", other+":30080 "+node)
	for _, asked := range []string{node + ":30080", external + ":80"} {
		require.Equal(t, []string{pod1 + ":8080 " + client}, w.reached(w.outside, client, asked, 1), asked)
	}
	require.Equal(t, []string{pod1 + ":8080 " + other}, w.reached(w.outside, other, node+":30080", 1), "another node")
	w.answers(w.pods, podClient, "tcp", node+":30081", pod2+":8080 "+edge)
	w.answers(w.node, "", "tcp", node+":30081", pod2+":8080 "+management)
	w.silent(w.outside, client, node+":30081")

	w.table.Remove(inside(local("tcp", 30080)))
	w.table.Remove(there)
	_, err := w.table.Sync(at, porttables.Hosts{}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{pod1 + ":8080 " + edge}, w.reached(w.pods, podClient, node+":30080", 1))
	require.Equal(t, []string{pod1 + ":8080 " + client}, w.reached(w.outside, client, node+":30080", 1))
	w.answers(w.node, "", "tcp", node+":30080", pod1+":8080 "+management)

	refusing := local("tcp", 30080)
	refusing.Refuses = true
	w.syncAll(true, at, serving{Services: []nodeports.Port{refusing, at2(external, 80, pod1)}})
	for _, from := range []netns.NsHandle{w.pods, w.node, w.outside} {
		_, err := w.ask(from, "", "tcp", node+":30080")
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
	require.Equal(t, []string{pod1 + ":8080 " + edge}, w.reached(w.pods, podClient, external+":80", 1))

	w.syncAll(true, place, serving{Services: services[:6]})
	w.answers(w.pods, podClient, "tcp", node+":30080", pod1+":8080 "+edge) // a pod network that balances has no such ports
}

// at2 returns a local port of an external address.
func at2(address string, number uint16, pods ...string) nodeports.Port {
	return at(address, local("tcp", number, pods...))
}

// A restricted port is restricted for clients inside the cluster too.
func TestInsideRestricted(t *testing.T) {
	w, where := newBalancing(t)
	restricted := at2(external, 80, pod1)
	restricted.Restricted, restricted.Sources = true, []netip.Prefix{netip.MustParsePrefix(podClient + "/32")}
	wide := inside(restricted)
	wide.Endpoints = direct("tcp", 80, pod2).Endpoints
	w.syncAll(true, where, serving{Services: []nodeports.Port{restricted, wide}})
	w.answers(w.pods, podClient, "tcp", external+":80", pod2+":8080 "+edge)
	w.silent(w.pods, pod1, external+":80")
	w.silent(w.node, "", external+":80")
	w.silent(w.outside, client, external+":80")
}

// A pod keeps its endpoint of a port with affinity. Others can read and harm the rules, and a new agent recognises them.
func TestInsideAffinity(t *testing.T) {
	w, where := newBalancing(t)
	var services []nodeports.Port
	for _, affinity := range []time.Duration{0, time.Hour} {
		one := local("tcp", 30080+uint16(len(services)), pod1)
		one.Affinity = affinity
		two := inside(one)
		two.Endpoints = local("tcp", 80, pod1, pod2).Endpoints
		services = append(services, one, two)
	}
	ports := serving{Services: services}
	w.syncAll(true, where, ports)
	require.Len(t, w.reached(w.pods, podClient, node+":30080", 2), 2)
	require.Len(t, w.reached(w.pods, podClient, node+":30082", 1), 1)
	whole := w.run(w.node, "nft -s list table ip "+nodeports.TableName)
	require.Equal(t, 2*2+1, strings.Count(w.run(w.node, "nft -s list chain ip "+nodeports.TableName+" inside-tcp-30082"), "comment"))
	for _, harm := range []string{
		"flush chain ip %s inside-tcp-30080", "flush chain ip %s inside-tcp-30082", "add rule ip %s inside-tcp-30080 accept", "flush map ip %s insiders",
		"delete element ip %s endpoints '{ 0.0.0.0 . tcp . 30080 . 65 }'",
	} {
		w.run(w.node, "nft "+strings.ReplaceAll(harm, "%s", nodeports.TableName))
		w.syncAll(true, where, ports)
		w.syncAll(false, where, ports)
		require.Equal(t, whole, w.run(w.node, "nft -s list table ip "+nodeports.TableName), harm)
	}
	changed, err := w.syncTable(porttables.New(porttables.Config{Netns: w.node, Link: "coe0", EgressLinks: "coe-*"}), where, ports)
	require.NoError(t, err)
	require.False(t, changed)
}

// A client that keeps sending UDP follows the endpoints that are for it: a pod those inside the cluster, and a client outside those on the node.
func TestChangedInsideUDPPorts(t *testing.T) {
	w, where := newBalancing(t)
	syncs := func(outside []nodeports.Port, all ...nodeports.Port) {
		t.Helper()
		w.syncAll(true, where, serving{Services: append(outside, all...)})
	}
	here := []nodeports.Port{local("udp", 30080, pod1)}
	dial := func(from netns.NsHandle, source string) func(want string) {
		conn, err := w.dial(from, source, "udp", node+":30080")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return func(want string) {
			t.Helper()
			require.Eventually(t, func() bool { // an ICMP error of the past may come first
				got, err := answer(conn, patience.Patience)
				return err == nil && got == want
			}, patience.Patience, time.Millisecond, want)
			got, err := answer(conn, patience.Patience)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	syncs(here)
	pod, program, outside := dial(w.pods, podClient), dial(w.node, management), dial(w.outside, client)
	says := func(of, to string) {
		t.Helper()
		pod(to + ":8080 " + edge)
		program(to + ":8080 " + management)
		outside(of + ":8080 " + client)
	}
	says(pod1, pod1)
	syncs(here, inside(direct("udp", 30080, pod2)))
	says(pod1, pod2)
	syncs([]nodeports.Port{local("udp", 30080, pod2)}, inside(direct("udp", 30080, pod1)))
	says(pod2, pod1)
	syncs(here, inside(direct("udp", 30080, pod1, pod2)))
	says(pod1, pod1)
	syncs(here, inside(direct("udp", 30080, pod2)))
	says(pod1, pod2)
	syncs(here)
	says(pod1, pod1)
}
