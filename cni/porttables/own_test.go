package porttables_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// own returns a port at an address that leads only programs of the node: to pods elsewhere, or to those on the node if p is
// local.
func own(address string, p nodeports.Port) nodeports.Port {
	p = at(address, p)
	p.Own = true
	return p
}

// Programs of the node reach only the endpoints on it by the cluster address of a local service, and get no answer if
// there are none, or are refused if no node has one. An endpoint can be a program of the node too. Other clients reach the service.
func TestOwnClusterAddress(t *testing.T) { eachFamily(t, testOwnClusterAddress) }

func testOwnClusterAddress(w *world) {
	t := w.T
	w.run(w.outside, "ip route add 10.96.0.0/16 via "+node)
	w.serveIn(w.node, "0.0.0.0:8080") // a server of UDP answers from the address that the kernel chooses
	here := local("tcp", 80, pod1)
	where := place
	where.IPv4.Node = netip.MustParseAddr(management)
	syncs := func(changes bool, ports ...nodeports.Port) {
		t.Helper()
		w.syncAll(changes, where, serving{Services: ports})
	}
	others := func() {
		t.Helper()
		w.answers(w.outside, client, "tcp", service+":80", service+":80 "+client)
		w.answers(w.pods, "10.42.0.9", "tcp", service+":80", service+":80 10.42.0.9")
	}
	for range 2 {
		syncs(true, own(service, here), own(service, local("udp", 80, pod2)))
		syncs(false, own(service, here), own(service, local("udp", 80, pod2)))
		require.Zero(t, w.table.Services())
		require.Equal(t, 2, w.table.Own())
		w.answers(w.node, "", "tcp", service+":80", pod1+":8080 "+management)
		w.answers(w.node, node, "tcp", service+":80", pod1+":8080 "+node)
		w.answers(w.node, "", "udp", service+":80", pod2+":8080 "+management)
		others()

		syncs(true, own(service, local("tcp", 80)))
		w.silent(w.node, "", service+":80")
		others()

		refusing := []nodeports.Port{own(service, local("tcp", 80)), own(service, local("udp", 80))}
		refusing[0].Refuses, refusing[1].Refuses = true, true
		syncs(true, refusing...)
		syncs(false, refusing...)
		_, err := w.ask(w.node, "", "tcp", service+":80")
		require.ErrorIs(t, err, unix.ECONNREFUSED)
		_, err = w.ask(w.node, "", "udp", service+":80")
		require.ErrorIs(t, err, unix.EPERM, "Linux refuses the packet itself")
		others()

		syncs(true, own(service, local("tcp", 80, node)), own(service, local("udp", 80, node)))
		for _, network := range []string{"tcp", "udp"} {
			w.answers(w.node, "", network, service+":80", "0.0.0.0:8080 "+node)
		}
		others()

		syncs(true)
		w.answers(w.node, "", "tcp", service+":80", service+":80 "+management)
		require.Empty(t, w.run(w.node, "nft list ruleset"))
	}
}

// Programs that ask another node by a local node port reach the endpoints on that node, and those that ask their own node
// reach all endpoints. The endpoints see the address of the node. Other clients are not led there, and nobody is while
// the endpoints are not known to be current.
func TestOwnNodePorts(t *testing.T) { eachFamily(t, testOwnNodePorts) }

func testOwnNodePorts(w *world) {
	t := w.T
	const further = "192.0.2.77" // pods do not route it to the node
	w.run(w.node, "ip addr add "+further+"/32 dev lo")
	w.serveIn(w.outside, other+":30080")
	w.run(w.outside, "ip route add 10.42.0.0/16 via "+node)
	ports := serving{
		Services: []nodeports.Port{local("tcp", 30080, pod2), own(other, direct("tcp", 30080, pod1)), own(node, direct("tcp", 30080, pod1, pod2))},
		Hosts:    []nodeports.HostPort{host("", "tcp", 8080, pod1)},
	}
	for _, where := range []nodeports.Place{place, hosting} {
		w.syncAll(true, where, ports)
		w.syncAll(false, where, ports)
		require.Equal(t, 1, w.table.Services())
		require.Equal(t, 2, w.table.Own())
		w.answers(w.node, "", "tcp", other+":30080", pod1+":8080 "+node)
		w.answers(w.node, management, "tcp", other+":30080", pod1+":8080 "+management)
		w.answers(w.node, further, "tcp", other+":30080", pod1+":8080 "+management)
		seen := map[string]bool{}
		require.Eventually(t, func() bool {
			got, err := w.ask(w.node, "", "tcp", node+":30080")
			require.NoError(t, err)
			seen[got] = true
			return len(seen) == 2
		}, 5*patience.Patience, time.Millisecond, "both endpoints answer")
		require.Equal(t, map[string]bool{w.text(pod1 + ":8080 " + node): true, w.text(pod2 + ":8080 " + node): true}, seen)

		w.answers(w.outside, client, "tcp", node+":30080", pod2+":8080 "+client)
		w.answers(w.outside, other, "tcp", node+":30080", pod2+":8080 "+edge)
		w.answers(w.pods, "10.42.0.9", "tcp", node+":30080", pod2+":8080 "+edge)
		w.answers(w.pods, "10.42.0.9", "tcp", other+":30080", other+":30080 10.42.0.9")
	}
	w.answers(w.node, "", "tcp", node+":8080", pod1+":8080 "+management) // a host port

	ports.Services = []nodeports.Port{local("tcp", 30080, pod2), own(other, direct("tcp", 30080))}
	w.syncAll(true, hosting, ports)
	w.answers(w.node, "", "tcp", other+":30080", other+":30080 "+node)
	w.answers(w.node, "", "tcp", node+":30080", service+":80 "+node)

	w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	w.run(w.node, "nft flush ruleset")
	ports.Services = append(ports.Services, own(other, direct("tcp", 30081, pod1)), own(node, direct("tcp", 30080, pod1)))
	where := place
	if w.six {
		where, ports = sixth(where), ports.translated()
	}
	w.table.Replace(ports.Services)
	_, err := w.table.Sync(where, porttables.Hosts{}, nil) // and no Refresh
	require.NoError(t, err)
	w.answers(w.node, "", "tcp", other+":30080", other+":30080 "+node)
	w.answers(w.node, "", "tcp", node+":30080", service+":80 "+node)
}

// Ports of others and ports for programs of the node replace each other at one address, and do not remove each other.
func TestOwnAndExternal(t *testing.T) {
	w := newWorld(t)
	w.withExternal()
	forAll, forOwn := at(external, local("tcp", 80, pod1)), own(external, direct("tcp", 80, pod2))
	syncs := func() {
		t.Helper()
		_, err := w.table.Sync(place, porttables.Hosts{}, nil)
		require.NoError(t, err)
		require.NoError(t, w.table.Refresh(time.Now().Add(time.Hour)))
	}
	w.table.Put(forAll)
	w.table.Put(forOwn)
	w.table.Remove(forAll)
	syncs()
	w.answers(w.node, "", "tcp", external+":80", pod2+":8080 "+node)
	require.NotContains(t, w.run(w.node, "nft list set ip "+nodeports.TableName+" externals"), external)
	w.table.Put(forAll)
	w.table.Remove(forOwn)
	syncs()
	w.answers(w.node, "", "tcp", external+":80", service+":80 "+node)
	w.answers(w.outside, client, "tcp", external+":80", pod1+":8080 "+client)
	w.table.Remove(forAll)
	syncs()
	require.Empty(t, w.run(w.node, "nft list ruleset"))
}

// A program of the node that keeps sending UDP reaches the current endpoint. Clients outside that ask the same port of the
// node keep theirs.
func TestChangedOwnUDPPorts(t *testing.T) { eachFamily(t, testChangedOwnUDPPorts) }

func testChangedOwnUDPPorts(w *world) {
	t := w.T
	dial := func(from string, at string) net.Conn {
		t.Helper()
		ns := w.node
		if from == client {
			ns = w.outside
		}
		conn, err := w.dial(ns, from, "udp", at)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	says := func(conn net.Conn, want string) {
		t.Helper()
		var got string
		require.Eventually(t, func() (ok bool) { // an ICMP error of the past may come first
			var err error
			got, err = answer(conn, patience.Patience)
			return err == nil
		}, patience.Patience, time.Millisecond)
		require.Equal(t, w.text(want), got)
	}
	w.serveIn(w.outside, other+":30080")
	both := local("udp", 30080, pod1, pod2)
	w.sync(true, both)
	outside := dial(client, node+":30080")
	first, err := answer(outside, patience.Patience)
	require.NoError(t, err)
	elsewhere, self, inside := dial(node, other+":30080"), dial(node, node+":30080"), dial(management, service+":80")
	says(elsewhere, other+":30080 "+node)
	says(self, service+":80 "+node)
	says(inside, service+":80 "+management)
	for _, pod := range []string{pod1, pod2, pod1} {
		w.sync(true, both, own(other, direct("udp", 30080, pod)), own(node, direct("udp", 30080, pod)), own(service, local("udp", 80, pod)))
		says(elsewhere, pod+":8080 "+node)
		says(self, pod+":8080 "+node)
		says(inside, pod+":8080 "+management)
		got, err := answer(outside, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, first, got)
	}
	w.sync(true, both)
	says(elsewhere, other+":30080 "+node)
	says(self, service+":80 "+node)
	says(inside, service+":80 "+management)
}

// A port for programs of the node has an element for the number of its endpoints and one for each. An invalid one is an
// error.
func TestOwnElements(t *testing.T) {
	w := newWorld(t)
	w.sync(true, own(other, direct("tcp", 30080, pod1, pod2)), own(service, local("tcp", 80)))
	require.Equal(t, 3, strings.Count(w.run(w.node, "nft list table ip "+nodeports.TableName), ". 30080"))
	bad := own("0.0.0.0", direct("tcp", 30080))
	bad.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:80")}
	_, err := w.syncing(place, serving{Services: []nodeports.Port{bad}})
	require.ErrorContains(t, err, "tcp port 30080 of 0.0.0.0 for the node's programs: the endpoint [fd00::1]:80 is not an IPv4 address")
}
