package porttables_test

import (
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// dualPlace returns a place in both families.
func dualPlace(at nodeports.Place) nodeports.Place {
	six := sixth(at)
	at.IPv6, at.Inside = six.IPv6, append(at.Inside, six.Inside...)
	return at
}

// dual returns ports, and the same ports in IPv6.
func dual(ports ...nodeports.Port) []nodeports.Port {
	return append(ports, serving{Services: ports}.translated().Services...)
}

func (w *world) generation() uint32 {
	w.Helper()
	now, err := porttables.Generation(w.node)
	require.NoError(w, err)
	return now
}

// A change of both families is one transaction. So is a change of the place: open sets keep their elements meanwhile. A family
// that ends takes its table with it.
func TestBothFamilies(t *testing.T) {
	w := newWorld(t)
	place := dualPlace(hosting)
	w.syncAll(true, place, serving{Services: dual(cluster("tcp", 30080))})
	before := w.generation()
	ports := serving{Services: dual(cluster("tcp", 30080), local("tcp", 30081, pod1))}
	w.syncAll(true, place, ports)
	require.Equal(t, before+1, w.generation())
	require.Equal(t, 4, w.table.Services())

	for _, change := range []func(){
		func() { place.IPv4.Edge, place.IPv6.Edge = place.IPv4.Edge.Prev(), place.IPv6.Edge.Prev() },
		func() { place.HostPorts = false },
		func() { place.HostPorts = true },
		func() { place.IPv4.ByGateways = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")} },
	} {
		change()
		ports.Services = append(ports.Services, cluster("tcp", uint16(30100+len(ports.Services)))) // and an element
		before := w.generation()
		w.syncAll(true, place, ports)
		require.Equal(t, before+1, w.generation())
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
		again := porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
		changed, err := ports.sync(again, place, []netip.Addr{netip.MustParseAddr(node), netip.MustParseAddr(other)})
		require.NoError(t, err)
		require.False(t, changed, "the rules are complete")
	}

	place.IPv6 = nodeports.Addresses{}
	w.syncAll(true, place, ports)
	require.Equal(t, "table ip "+nodeports.TableName+"\n", w.run(w.node, "nft list tables"))
	require.Equal(t, 6, w.table.Services())
	w.syncAll(false, place, ports)
}

// Chains of ports come and go in the tables of both families, in one transaction.
func TestChainsOfBothFamilies(t *testing.T) {
	w := newWorld(t)
	place, port := dualPlace(place), direct("tcp", 30080, "10.42.1.1", "10.42.1.2")
	for _, affinity := range []time.Duration{0, time.Hour, 0} {
		port.Affinity = affinity
		before := w.generation()
		w.syncAll(true, place, serving{Services: dual(port)})
		if affinity > 0 {
			require.Equal(t, before+1, w.generation())
		}
		for _, family := range []string{"ip ", "ip6 "} {
			has := strings.Contains(w.run(w.node, "nft list table "+family+nodeports.TableName), "chain client-tcp-30080 ")
			require.Equal(t, affinity > 0, has, family)
		}
	}
}

// A table of one family that cannot be written does not keep the other from being written.
func TestOneFamilyFails(t *testing.T) {
	w := newWorld(t)
	owner := exec.CommandContext(t.Context(), "nft", "-i")
	commands, err := owner.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, links.Inside(w.node, owner.Start))
	_, err = io.WriteString(commands, "add table ip6 "+nodeports.TableName+" { flags owner; }\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(w.run(w.node, "nft list tables"), nodeports.TableName) }, patience.Patience, 50*time.Millisecond)
	place, ports := dualPlace(place), serving{Services: dual(cluster("tcp", 30080))}
	for range 2 {
		_, err = w.syncing(place, ports)
		require.ErrorContains(t, err, "operation not permitted")
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	}
	ports.Services = dual(cluster("tcp", 30081))
	_, err = w.syncing(place, ports)
	require.ErrorContains(t, err, "operation not permitted")
	w.answers(w.outside, client, "tcp", node+":30081", service+":80 "+client)

	require.NoError(t, commands.Close())
	require.NoError(t, owner.Wait())
	w.syncAll(true, place, ports)
	require.Contains(t, w.run(w.node, "nft list table ip6 "+nodeports.TableName), "30081")
	w.syncAll(false, place, ports)
}

// Ports do not answer at link-local addresses. Neighbour discovery is not touched.
func TestLinkLocalAddresses(t *testing.T) {
	w := newWorldOf(t, true)
	ports := serving{Services: []nodeports.Port{cluster("tcp", 30080)}, Hosts: []nodeports.HostPort{host("", "tcp", 8080, pod1)}}
	w.syncAll(true, hosting, ports)
	w.run(w.node, "ip addr add fe80::77/64 dev eth0")
	for _, port := range []string{"30080", "8080"} {
		_, err := w.ask(w.outside, "", "tcp", "[fe80::77%eth0]:"+port)
		require.ErrorContains(t, err, "refused")
	}
	for _, link := range []string{"eth0", "coe0"} {
		w.run(w.node, "ip neigh flush dev "+link)
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	}
}
