package porttables_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The addresses of a world.
const (
	node    = "192.0.2.1"
	client  = "192.0.2.2"
	other   = "192.0.2.3" // another node, which is the client's second address
	service = "10.96.0.10"
	pod1    = "10.42.0.2"
	pod2    = "10.42.0.3"
	// management is the address of the node in the pod network, edge its address for traffic of others.
	management = "100.96.0.2"
	edge       = "100.96.0.254"
	external   = "198.51.100.10" // an external address of a service
)

var place = nodeports.Place{
	IPv4: nodeports.Addresses{
		Edge: netip.MustParseAddr(edge), Network: netip.MustParsePrefix("100.96.0.0/24"), Node: netip.MustParseAddr(management), Internal: netip.MustParseAddr(node),
	},
	Inside: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.96.0.0/12")},
}

// world is a node between a client outside the cluster and the pod network. In the pod network are a
// cluster address and two pods, each with a server that answers with its own address and the client's.
type world struct {
	*testing.T
	six                 bool // see translated
	outside, node, pods netns.NsHandle
	table               *porttables.Table
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, false)
}

// eachFamily runs a test in a world of IPv4, and in one of IPv6.
func eachFamily(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Run("IPv4", func(t *testing.T) { test(newWorldOf(t, false)) })
	t.Run("IPv6", func(t *testing.T) { test(newWorldOf(t, true)) })
}

// dotted is an IPv4 address in a text, with the length of a prefix or a port.
var dotted = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+)(/\d+)?(:\d+)?`)

// text replaces the IPv4 addresses in a text by the addresses of the world, and the names of families in commands. Tests
// name the IPv4 addresses.
func (w *world) text(of string) string {
	if !w.six {
		return of
	}
	of = dotted.ReplaceAllStringFunc(of, func(found string) string {
		parts := dotted.FindStringSubmatch(found)
		address := translated(netip.MustParseAddr(parts[1])).String()
		switch {
		case parts[2] != "":
			return translatedPrefix(netip.MustParsePrefix(parts[1] + parts[2])).String()
		case parts[3] != "":
			return "[" + address + "]" + parts[3]
		}
		return address
	})
	return added.ReplaceAllString(families.Replace(of), "$1 nodad")
}

// added are the commands that add an address.
var added = regexp.MustCompile(`(ip addr add \S+ dev [a-z0-9]+)`)

// families has the commands that name a family.
var families = strings.NewReplacer(
	"table ip ", "table ip6 ", "chain ip ", "chain ip6 ", "map ip ", "map ip6 ", "set ip ", "set ip6 ", "element ip ", "element ip6 ", "rule ip ", "rule ip6 ",
	"table ip6 ", "table ip ", "ip daddr ", "ip6 daddr ", "ipv4_addr", "ipv6_addr", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
)

// translated returns the IPv6 address of a world for an IPv4 address: it ends in the same bytes.
func translated(a netip.Addr) netip.Addr {
	switch {
	case !a.Is4():
		return a
	case a.IsUnspecified():
		return netip.IPv6Unspecified()
	case a.IsLoopback():
		return netip.IPv6Loopback()
	}
	six, four := netip.MustParseAddr("fd64::").As16(), a.As4()
	copy(six[12:], four[:])
	return netip.AddrFrom16(six)
}

func translatedPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(translated(a.Addr()), a.Port())
}

func translatedPrefix(p netip.Prefix) netip.Prefix {
	switch {
	case !p.Addr().Is4():
		return p
	case p.Bits() == 0:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(translated(p.Addr()), 96+p.Bits())
}

func translatedPrefixes(all []netip.Prefix) (to []netip.Prefix) {
	for _, p := range all {
		to = append(to, translatedPrefix(p))
	}
	return to
}

// translated returns the ports in the addresses of IPv6.
func (s serving) translated() (to serving) {
	to.HostsUnknown = s.HostsUnknown
	for _, p := range s.Services {
		p.Address, p.Service, p.Sources = translated(p.Address), translatedPort(p.Service), translatedPrefixes(p.Sources)
		p.Endpoints = slices.Clone(p.Endpoints)
		for i, e := range p.Endpoints {
			p.Endpoints[i] = translatedPort(e)
		}
		to.Services = append(to.Services, p)
	}
	for _, p := range s.Hosts {
		p.Address, p.Pod = translated(p.Address), translatedPort(p.Pod)
		to.Hosts = append(to.Hosts, p)
	}
	return to
}

// sixth returns a place of IPv4 in IPv6.
func sixth(at nodeports.Place) nodeports.Place {
	if !at.IPv4.Edge.IsValid() {
		return at
	}
	at.IPv6 = nodeports.Addresses{
		Edge: translated(at.IPv4.Edge), Network: translatedPrefix(at.IPv4.Network), Node: translated(at.IPv4.Node), Internal: translated(at.IPv4.Internal),
		ByGateways: translatedPrefixes(at.IPv4.ByGateways),
	}
	at.IPv4, at.Inside = nodeports.Addresses{}, translatedPrefixes(at.Inside)
	return at
}

func newWorldOf(t *testing.T, six bool) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root; make test runs it")
	}
	w := &world{T: t, six: six, outside: namespace.New(t), node: namespace.New(t), pods: namespace.New(t)}
	for _, ns := range []netns.NsHandle{w.outside, w.node, w.pods} {
		w.run(ns, "ip link set lo up")
	}
	w.join(w.outside, "eth0", client, w.node, "eth0", node)
	w.join(w.pods, "eth0", "100.96.0.1", w.node, "coe0", management)
	w.run(w.outside, "ip addr add "+other+"/24 dev eth0")
	w.run(w.node, "sysctl -q -w net.ipv4.ip_forward=1; ip route add 10.0.0.0/8 via 100.96.0.1")
	w.run(w.pods, "ip route add default via "+management+"; ip route add "+edge+" via "+management)
	w.run(w.pods, "ip addr add 10.42.0.9/32 dev lo") // a pod that is a client
	for _, at := range []string{service + ":80", pod1 + ":8080", pod2 + ":8080"} {
		address, _, _ := strings.Cut(at, ":")
		w.run(w.pods, "ip addr add "+address+"/32 dev lo")
		w.serve(at)
	}
	w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	return w
}

// join connects two namespaces.
func (w *world) join(a netns.NsHandle, linkA, addressA string, b netns.NsHandle, linkB, addressB string) {
	w.Helper()
	w.run(a, fmt.Sprintf("ip link add %s type veth peer name %s netns /proc/%d/fd/%d", linkA, linkB, os.Getpid(), int(b)))
	w.run(a, fmt.Sprintf("ip addr add %s/24 dev %s; ip link set %s up", addressA, linkA, linkA))
	w.run(b, fmt.Sprintf("ip addr add %s/24 dev %s; ip link set %s up", addressB, linkB, linkB))
}

// run runs a command in a namespace, and returns its output.
func (w *world) run(ns netns.NsHandle, command string) (out string) {
	w.Helper()
	command = w.text(command)
	require.NoError(w, links.Inside(ns, func() (err error) {
		out, err = namespace.Output(exec.CommandContext(w.Context(), "sh", "-c", command))
		return err
	}))
	return out
}

// serve answers over TCP and UDP in the pod network, and serveIn in a namespace.
func (w *world) serve(at string) {
	w.Helper()
	w.serveIn(w.pods, at)
}

func (w *world) serveIn(ns netns.NsHandle, at string) {
	w.Helper()
	at = w.text(at)
	require.NoError(w, links.Inside(ns, func() error {
		tcp, err := new(net.ListenConfig).Listen(context.Background(), w.network("tcp4"), at)
		if err != nil {
			return err
		}
		udp, err := new(net.ListenConfig).ListenPacket(context.Background(), w.network("udp4"), at)
		if err != nil {
			return err
		}
		w.Cleanup(func() { _ = tcp.Close(); _ = udp.Close() })
		go func() {
			for {
				conn, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = conn.Close() }()
					if _, err := conn.Read(make([]byte, 1)); err == nil {
						_, _ = fmt.Fprintf(conn, "%s %s", at, conn.RemoteAddr().(*net.TCPAddr).IP)
					}
				}()
			}
		}()
		go func() {
			buffer := make([]byte, 64)
			for {
				_, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo(fmt.Appendf(nil, "%s %s", at, from.(*net.UDPAddr).IP), from)
			}
		}()
		return nil
	}))
}

// network returns the network of the world for one of IPv4.
func (w *world) network(four string) string {
	if w.six {
		return strings.Replace(four, "4", "6", 1)
	}
	return four
}

// dial connects a client to a port of the node. Its source is an address of the namespace; "" for any.
func (w *world) dial(from netns.NsHandle, source, network, at string) (conn net.Conn, err error) {
	d := &net.Dialer{Timeout: patience.Patience}
	if source, at = w.text(source), w.text(at); source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
		}
	}
	err = links.Inside(from, func() error {
		conn, err = d.DialContext(w.Context(), network, at)
		return err
	})
	return conn, err
}

// ask returns the answer to a client.
func (w *world) ask(from netns.NsHandle, source, network, at string) (string, error) {
	conn, err := w.dial(from, source, network, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return answer(conn, patience.Patience)
}

func answer(conn net.Conn, within time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

// answers requires an answer.
func (w *world) answers(from netns.NsHandle, source, network, at, want string) {
	w.Helper()
	got, err := w.ask(from, source, network, at)
	require.NoError(w, err, "%s %s", network, at)
	require.Equal(w, w.text(want), got, "%s %s", network, at)
}

// serving are the ports on which a node answers.
type serving struct {
	Services     []nodeports.Port
	Hosts        []nodeports.HostPort
	HostsUnknown bool
}

// sync replaces the ports of a table.
func (s serving) sync(table *porttables.Table, at nodeports.Place, nodes []netip.Addr) (changed bool, err error) {
	table.Replace(s.Services)
	changed, err = table.Sync(at, porttables.Hosts{Ports: s.Hosts, Unknown: s.HostsUnknown}, nodes)
	return changed, errors.Join(err, table.Refresh(time.Now().Add(time.Hour)))
}

// sync requires whether the node is changed.
func (w *world) sync(changes bool, ports ...nodeports.Port) {
	w.Helper()
	w.syncAll(changes, place, serving{Services: ports})
}

// syncAll requires whether the node at a place is changed.
func (w *world) syncAll(changes bool, at nodeports.Place, ports serving) {
	w.Helper()
	changed, err := w.syncing(at, ports)
	require.NoError(w, err)
	require.Equal(w, changes, changed)
}

// syncing is a Sync that may fail.
func (w *world) syncing(at nodeports.Place, ports serving) (bool, error) {
	w.Helper()
	return w.syncTable(w.table, at, ports)
}

// syncTable is syncing for another table.
func (w *world) syncTable(table *porttables.Table, at nodeports.Place, ports serving) (bool, error) {
	nodes := []netip.Addr{netip.MustParseAddr(node), netip.MustParseAddr(other)}
	if w.six {
		at, ports = sixth(at), ports.translated()
		nodes = []netip.Addr{translated(nodes[0]), translated(nodes[1])}
	}
	return ports.sync(table, at, nodes)
}

func cluster(protocol string, number uint16) nodeports.Port {
	return nodeports.Port{Address: netip.IPv4Unspecified(), Protocol: protocol, Number: number, Service: netip.MustParseAddrPort(service + ":80")}
}

func local(protocol string, number uint16, pods ...string) nodeports.Port {
	p := cluster(protocol, number)
	p.Local = true
	for _, at := range pods {
		p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(netip.MustParseAddr(at), 8080))
	}
	return p
}

// direct returns a port that leads to pods on all nodes.
func direct(protocol string, number uint16, pods ...string) nodeports.Port {
	p := local(protocol, number, pods...)
	p.Local = false
	return p
}

// Clients outside the cluster, pods and the node itself reach the service at every address of the node.
// Other ports stay with the node. There are no rules for the node's own traffic to services here.
func TestClusterPorts(t *testing.T) { eachFamily(t, testClusterPorts) }

func testClusterPorts(w *world) {
	t := w.T
	w.sync(true, cluster("tcp", 30080), cluster("udp", 30080))
	w.sync(false, cluster("udp", 30080), cluster("tcp", 30080))
	for _, network := range []string{"tcp", "udp"} {
		w.answers(w.outside, client, network, node+":30080", service+":80 "+client)
		w.answers(w.outside, other, network, node+":30080", service+":80 "+edge)
		w.answers(w.node, "", network, node+":30080", service+":80 "+node)
		w.answers(w.node, "", network, management+":30080", service+":80 "+management)
	}
	_, err := w.ask(w.outside, client, "tcp", node+":30081")
	require.ErrorContains(t, err, "refused")
	_, err = w.ask(w.node, "", "tcp", "127.0.0.1:30080")
	require.ErrorContains(t, err, "refused", "the loopback addresses stay")

	w.sync(true)
	w.sync(false)
	_, err = w.ask(w.outside, client, "tcp", node+":30080")
	require.ErrorContains(t, err, "refused")
	require.Empty(t, w.run(w.node, "nft list ruleset"))
}

// A local port leads clients to the endpoints on the node. The endpoints see a client outside the
// cluster, and the edge address of this node instead of another node or a pod. The node itself reaches the
// service.
func TestLocalPorts(t *testing.T) { eachFamily(t, testLocalPorts) }

func testLocalPorts(w *world) {
	t := w.T
	sticky := local("tcp", 30082, pod1, pod2)
	sticky.Affinity = time.Hour
	w.sync(true, local("tcp", 30080, pod1, pod2), local("udp", 30080, pod2), local("tcp", 30081), sticky)

	seen := map[string]bool{}
	require.Eventually(t, func() bool {
		got, err := w.ask(w.outside, client, "tcp", node+":30080")
		require.NoError(t, err)
		seen[got] = true
		return len(seen) == 2
	}, 5*patience.Patience, time.Millisecond, "both endpoints answer")
	require.Equal(t, map[string]bool{w.text(pod1 + ":8080 " + client): true, w.text(pod2 + ":8080 " + client): true}, seen, "they see the client")
	w.answers(w.outside, client, "udp", node+":30080", pod2+":8080 "+client)
	w.answers(w.outside, other, "udp", node+":30080", pod2+":8080 "+edge)
	w.answers(w.pods, "10.42.0.9", "udp", management+":30080", pod2+":8080 "+edge)
	w.answers(w.node, "", "tcp", node+":30080", service+":80 "+node)

	first, err := w.ask(w.outside, client, "tcp", node+":30082")
	require.NoError(t, err)
	for range 30 {
		w.answers(w.outside, client, "tcp", node+":30082", first)
	}

	w.silent(w.outside, client, node+":30081")
	w.answers(w.node, "", "tcp", node+":30081", service+":80 "+node)

	w.sync(true, local("tcp", 30080, pod2))
	for range 30 {
		w.answers(w.outside, client, "tcp", node+":30080", pod2+":8080 "+client)
	}
}

// A port leads to endpoints on all nodes, which see the edge address instead of every client. A client that is an
// endpoint reaches itself too. The node's own programs reach the service. A port with an invalid endpoint leads to the
// service.
func TestDirectPorts(t *testing.T) { eachFamily(t, testDirectPorts) }

func testDirectPorts(w *world) {
	t := w.T
	w.withExternal()
	w.sync(true, direct("tcp", 30080, pod1), direct("udp", 30080, pod2), at(external, direct("tcp", 80, pod2)), at(external, local("tcp", 30080, pod2)))
	for _, c := range []struct{ network, at, want string }{
		{"tcp", node + ":30080", pod1 + ":8080 "}, {"udp", node + ":30080", pod2 + ":8080 "}, {"tcp", external + ":80", pod2 + ":8080 "},
	} {
		w.answers(w.outside, client, c.network, c.at, c.want+edge)
		w.answers(w.outside, other, c.network, c.at, c.want+edge)
		w.answers(w.node, "", c.network, c.at, service+":80 "+node)
	}
	w.answers(w.pods, "10.42.0.9", "tcp", node+":30080", pod1+":8080 "+edge)
	w.answers(w.pods, pod1, "tcp", node+":30080", pod1+":8080 "+edge)
	w.answers(w.outside, client, "tcp", external+":30080", pod2+":8080 "+client) // a local port of the same number

	w.run(w.outside, "ip route add 10.42.0.0/16 via "+node)
	w.serve(pod1 + ":30080")
	w.answers(w.outside, client, "tcp", pod1+":30080", pod1+":30080 "+client) // by route, not by a port of the node

	partly := direct("tcp", 30080, pod1)
	partly.Endpoints = append(partly.Endpoints, netip.MustParseAddrPort(pod2+":0"))
	_, err := w.syncing(place, serving{Services: []nodeports.Port{partly}})
	require.ErrorContains(t, err, w.text("node port tcp 30080: the endpoint "+pod2+":0 is not an "))
	w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	many := direct("tcp", 30080)
	for range nodeports.MaxEndpoints {
		many.Endpoints = append(many.Endpoints, netip.MustParseAddrPort(pod1+":8080"))
	}
	w.sync(true, many)
	w.answers(w.outside, client, "tcp", node+":30080", pod1+":8080 "+edge)
	many.Endpoints = append(many.Endpoints, netip.MustParseAddrPort(pod1+":8080"))
	_, err = w.syncing(place, serving{Services: []nodeports.Port{many}})
	require.ErrorContains(t, err, "is one too many: want at most 64")
	w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
}

// Once nobody keeps the endpoints current, new connections go to the service. Local ports stay as they are. A new process
// makes the endpoints current again.
func TestExpiredEndpoints(t *testing.T) {
	w := newWorld(t)
	ports := []nodeports.Port{direct("tcp", 30080, pod1), direct("udp", 30080, pod1), local("tcp", 30081, pod2)}
	nodes := []netip.Addr{netip.MustParseAddr(node), netip.MustParseAddr(other)}
	w.table.Replace(ports)
	_, err := w.table.Sync(place, porttables.Hosts{}, nodes)
	require.NoError(t, err)
	w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client) // not yet
	require.NoError(t, w.table.Refresh(time.Now().Add(-time.Second)))
	w.answers(w.outside, client, "udp", node+":30080", service+":80 "+client)

	for _, table := range []*porttables.Table{w.table, porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})} {
		table.Replace(ports)
		_, err := table.Sync(place, porttables.Hosts{}, nodes)
		require.NoError(t, err)
		require.Eventually(t, func() bool { // on a busy machine the time can be over before the answer
			require.NoError(t, table.Refresh(time.Now().Add(6*time.Second)))
			got, err := w.ask(w.outside, client, "tcp", node+":30080")
			return err == nil && got == pod1+":8080 "+edge
		}, patience.Patience, time.Millisecond)
		require.NoError(t, table.Refresh(time.Now().Add(12*time.Second)), "again")
		changed, err := table.Sync(place, porttables.Hosts{}, nodes)
		require.NoError(t, err)
		require.False(t, changed)
		require.Eventually(t, func() bool {
			got, err := w.ask(w.outside, client, "tcp", node+":30080")
			return err == nil && got == service+":80 "+client
		}, 5*patience.Patience, 50*time.Millisecond, "the time has ended")
		w.answers(w.outside, client, "tcp", node+":30081", pod2+":8080 "+client)
		changed, err = table.Sync(place, porttables.Hosts{}, nodes)
		require.NoError(t, err)
		require.False(t, changed, "nobody else has changed it")
	}
}

// Endpoints have equal shares of connections, and a client of a port with affinity has always the same one. That holds for any
// number of endpoints.
func TestShares(t *testing.T) { eachFamily(t, testShares) }

func testShares(w *world) {
	t := w.T
	var all []string
	for i := range 7 {
		address := fmt.Sprintf("10.42.1.%d", i+1)
		w.run(w.pods, "ip addr add "+address+"/32 dev lo")
		w.serve(address + ":8080")
		all = append(all, address)
	}
	for _, n := range []int{1, 3, 7} {
		// Other ports each time: the kernel remembers connections to endpoints that are still there.
		random, sticky := uint16(30080+n), uint16(30090+n)
		keeps := direct("udp", sticky, all[:n]...)
		keeps.Affinity = time.Hour
		w.sync(true, direct("udp", random, all[:n]...), keeps)
		const each = 60
		seen, kept := map[string]int{}, map[string]int{}
		for range each * n {
			for port, counts := range map[uint16]map[string]int{random: seen, sticky: kept} {
				got, err := w.ask(w.outside, client, "udp", fmt.Sprintf("%s:%d", node, port))
				require.NoError(t, err)
				counts[got]++
			}
		}
		require.Len(t, seen, n)
		for endpoint, count := range seen { // five standard deviations
			require.InDelta(t, each, count, 5*math.Sqrt(each), endpoint)
		}
		require.Len(t, kept, 1)
	}
}

// A client that keeps sending UDP from one socket reaches the current endpoint: after the port was
// added, after its endpoint was replaced, and after it was removed and added again. Other connections
// of the node stay.
func TestChangedUDPPorts(t *testing.T) { eachFamily(t, testChangedUDPPorts) }

func testChangedUDPPorts(w *world) {
	t := w.T
	w.run(w.node, "nft add table ip others; nft add chain ip others c '{ type filter hook forward priority 0; }'; nft add rule ip others c ct state new") // tracks connections
	w.run(w.node, "ip route add 198.51.100.0/24 via 100.96.0.1")
	beyond := "198.51.100.7:30080"
	w.run(w.pods, "ip addr add 198.51.100.7/32 dev lo")
	w.serve(beyond)
	passing, err := w.dial(w.outside, client, "udp", node+":30080")
	require.NoError(t, err)
	defer func() { _ = passing.Close() }()
	w.run(w.outside, "ip route add 198.51.100.0/24 via "+node)
	through, err := w.dial(w.outside, client, "udp", beyond)
	require.NoError(t, err)
	defer func() { _ = through.Close() }()
	_, err = answer(through, patience.Patience)
	require.NoError(t, err)
	require.Equal(t, 1, w.connections("198.51.100.7"))

	_, err = answer(passing, 100*time.Millisecond)
	require.Error(t, err, "nobody answers yet")
	for _, step := range []struct {
		port nodeports.Port
		want string
	}{
		{local("udp", 30080, pod1), pod1 + ":8080 " + client}, {local("udp", 30080, pod2), pod2 + ":8080 " + client},
		{direct("udp", 30080, pod1), pod1 + ":8080 " + edge}, {direct("udp", 30080, pod2), pod2 + ":8080 " + edge},
		{cluster("udp", 30080), service + ":80 " + client}, {direct("udp", 30080, pod1), pod1 + ":8080 " + edge},
		{local("udp", 30080, pod2), pod2 + ":8080 " + client}, {cluster("udp", 30080), service + ":80 " + client},
		{local("udp", 30080, pod1, pod2), pod1 + ":8080 " + client},
	} {
		w.sync(true, step.port)
		var got string
		require.Eventually(t, func() bool { // an ICMP error of the past may come first
			got, err = answer(passing, patience.Patience)
			return err == nil
		}, patience.Patience, time.Millisecond)
		if len(step.port.Endpoints) < 2 {
			require.Equal(t, w.text(step.want), got)
		}
	}
	w.sync(true)
	_, err = answer(passing, 100*time.Millisecond)
	require.Error(t, err, "the port is gone")
	require.Equal(t, 1, w.connections("198.51.100.7"))
}

// connections returns the number of the node's connections to an address.
func (w *world) connections(to string) (n int) {
	w.Helper()
	h, err := netlink.NewHandleAt(w.node, unix.NETLINK_NETFILTER)
	require.NoError(w, err)
	defer h.Close()
	family := netlink.InetFamily(unix.AF_INET)
	if w.six {
		family = unix.AF_INET6
	}
	all, err := h.ConntrackTableList(netlink.ConntrackTable, family)
	require.NoError(w, err)
	for _, flow := range all {
		if flow.Forward.DstIP.Equal(net.ParseIP(w.text(to))) {
			n++
		}
	}
	return n
}

// The table is restored after changes of others. Other tables stay.
func TestRestore(t *testing.T) { eachFamily(t, testRestore) }

func testRestore(w *world) {
	t := w.T
	w.run(w.node, "nft add table ip others; nft add set ip others s '{ type ipv4_addr; }'")
	restricted := at(external, cluster("tcp", 80))
	restricted.Restricted, restricted.Sources = true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")}
	ports := serving{
		Services: []nodeports.Port{cluster("tcp", 30080), local("tcp", 30081, pod1), restricted}, Hosts: []nodeports.HostPort{host("", "tcp", 8080, pod1)},
	}
	w.syncAll(true, hosting, ports)
	whole := w.run(w.node, "nft -s list table ip "+nodeports.TableName)
	t.Log(whole)
	for _, harm := range []string{
		"delete table ip %s", "flush chain ip %s arriving", "flush chain ip %s leaving", "flush chain ip %s on-node", "flush chain ip %s on-address", "flush chain ip %s own", "flush chain ip %s loopback", "flush map ip %s hosts", "flush map ip %s services",
		"flush set ip %s nodes", "add rule ip %s own accept", "add chain ip %s another", "add set ip %s another '{ type ipv4_addr; }'",
		"flush map ip %s balancers", "delete element ip %s balancers '{ 0.0.0.0 . tcp . 30081 }'", "flush chain ip %s any-of-7", "flush chain ip %s no-endpoint",
		"delete element ip %s services '{ 0.0.0.0 . tcp . 30080 }'", "add element ip %s services '{ 0.0.0.0 . tcp . 30099 : 10.96.0.10 . 80 }'",
		"add element ip %s balancers '{ 0.0.0.0 . tcp . 30080 : goto no-endpoint }'", "flush set ip %s externals", "flush set ip %s sources", "flush set ip %s restricted", "flush ruleset; true %s",
	} {
		w.run(w.node, "nft "+fmt.Sprintf(harm, nodeports.TableName))
		w.syncAll(true, hosting, ports)
		w.syncAll(false, hosting, ports)
		require.Equal(t, whole, w.run(w.node, "nft -s list table ip "+nodeports.TableName), harm)
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
		w.answers(w.outside, client, "tcp", node+":30081", pod1+":8080 "+client)
		w.answers(w.outside, client, "tcp", node+":8080", pod1+":8080 "+client)
		if !strings.HasPrefix(harm, "flush ruleset") {
			require.Contains(t, w.run(w.node, "nft list ruleset"), w.text("table ip others "))
		}
	}

	w.run(w.node, "nft add table ip others")
	w.syncAll(false, hosting, ports) // changes of others are read, and written by nobody

	again := porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	changed, err := w.syncTable(again, hosting, ports)
	require.NoError(t, err)
	require.False(t, changed, "a new agent recognises the table")
	moved := hosting
	moved.IPv4.Edge = moved.IPv4.Edge.Prev()
	changed, err = w.syncTable(again, moved, ports)
	require.NoError(t, err)
	require.True(t, changed)
	require.Contains(t, w.run(w.node, "nft list table ip "+nodeports.TableName), w.text("snat to 100.96.0.253"))
	changed, err = w.syncTable(again, nodeports.Place{}, serving{})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, w.text("table ip others {\n}\n"), w.run(w.node, "nft list ruleset"))
}

// A caller whose own tables were checked learns whether only the table has changed nftables since.
func TestAlone(t *testing.T) {
	w := newWorld(t)
	begin := func() {
		t.Helper()
		generation, err := porttables.Generation(w.node)
		require.NoError(t, err)
		w.table.Begin(generation)
	}
	begin()
	require.False(t, w.table.Alone(), "nothing is known")
	w.sync(true, cluster("tcp", 30080))
	begin()
	for number := range uint16(3) {
		w.sync(true, cluster("tcp", number+1))
		require.True(t, w.table.Alone())
	}
	w.run(w.node, "nft add table ip others")
	require.False(t, w.table.Alone())
	w.sync(true, cluster("tcp", 30080))
	w.sync(true, cluster("tcp", 30081))
	require.False(t, w.table.Alone(), "others have, and nothing was checked since")
	generation, err := porttables.Generation(w.node)
	require.NoError(t, err)
	w.sync(true, cluster("tcp", 30080))
	w.table.Begin(generation)
	require.False(t, w.table.Alone(), "changed while the caller was checking")
	begin()
	require.True(t, w.table.Alone())
	w.run(w.node, "nft delete table ip others")
	w.sync(true, cluster("tcp", 30081))
	require.False(t, w.table.Alone(), "others have changed it before the table")
}

// at returns a port of an address.
func at(address string, p nodeports.Port) nodeports.Port {
	p.Address = netip.MustParseAddr(address)
	return p
}

// withExternal routes the external addresses to the node, and from there to the outside.
func (w *world) withExternal() {
	w.Helper()
	w.run(w.outside, "ip route add 198.51.100.0/24 via "+node)
	w.run(w.node, "ip route add default via "+client)
}

// Packets to an external address reach the service from everywhere, as by a node port. Pods and the node reach
// all endpoints of a local port. Other ports and addresses pass by. It makes no difference whether the node has
// the address, as some load balancers give it to nodes.
func TestExternalAddresses(t *testing.T) { eachFamily(t, testExternalAddresses) }

func testExternalAddresses(w *world) {
	t := w.T
	w.withExternal()
	w.sync(true, at(external, cluster("tcp", 80)), at(external, cluster("udp", 80)), at(external, local("tcp", 81, pod1)),
		at(external, local("udp", 81, pod2)), at(external, local("tcp", 82)), cluster("tcp", 30080))
	outside := func() {
		for _, network := range []string{"tcp", "udp"} {
			w.answers(w.outside, client, network, external+":80", service+":80 "+client)
			w.answers(w.outside, other, network, external+":80", service+":80 "+edge)
		}
		w.answers(w.outside, client, "tcp", external+":81", pod1+":8080 "+client)
		w.answers(w.outside, other, "tcp", external+":81", pod1+":8080 "+edge)
		w.answers(w.outside, client, "udp", external+":81", pod2+":8080 "+client)
		w.silent(w.outside, client, external+":82")
	}
	outside()
	for _, number := range []string{":80", ":81"} {
		w.answers(w.node, "", "udp", external+number, service+":80 "+node)
		w.answers(w.pods, "10.42.0.9", "udp", external+number, service+":80 "+edge)
	}
	w.answers(w.node, "", "tcp", external+":82", service+":80 "+node)
	w.answers(w.pods, "10.42.0.9", "tcp", external+":82", service+":80 "+edge)
	w.silent(w.outside, client, external+":83")
	w.silent(w.outside, client, "198.51.100.11:80")
	w.silent(w.pods, "100.96.0.1", external+":80") // it has been through a service

	w.run(w.node, "ip addr add "+external+"/32 dev lo")
	outside()
	w.answers(w.outside, client, "tcp", external+":30080", service+":80 "+client)
	_, err := w.ask(w.outside, client, "tcp", external+":83")
	require.ErrorContains(t, err, "refused")
}

// Only clients in the ranges reach a restricted port, whether they are outside, on the node, or pods. Ranges that
// overlap are one. Other ports of the address, and node ports, are open.
func TestRestrictedAddresses(t *testing.T) { eachFamily(t, testRestrictedAddresses) }

func testRestrictedAddresses(w *world) {
	t := w.T
	w.withExternal()
	restricted := func(sources ...string) nodeports.Port {
		p := at(external, cluster("tcp", 80))
		p.Restricted = true
		for _, s := range sources {
			p.Sources = append(p.Sources, netip.MustParsePrefix(s))
		}
		return p
	}
	open := []nodeports.Port{at(external, cluster("tcp", 81)), cluster("tcp", 30080)}
	const pod = "10.42.0.9"
	for _, c := range []struct {
		sources                    []string
		client, other, pod, itself bool
	}{
		{[]string{client + "/32", "2001:db8::/32"}, true, false, false, false},
		{[]string{other + "/32"}, false, true, false, false},
		{[]string{"10.42.0.0/16", "10.42.0.0/24", pod + "/32"}, false, false, true, false},
		{[]string{node + "/32", "192.0.2.2/31"}, true, true, false, true},
		{[]string{"2001:db8::/32"}, false, false, false, false},
		{[]string{"0.0.0.0/0"}, true, true, true, true},
		{nil, false, false, false, false},
	} {
		w.sync(true, append(open, restricted(c.sources...))...)
		w.sync(false, append(open, restricted(c.sources...))...)
		for _, from := range []struct {
			ns     netns.NsHandle
			source string
			may    bool
			seen   string
		}{{w.outside, client, c.client, client}, {w.outside, other, c.other, edge}, {w.pods, pod, c.pod, edge}, {w.node, node, c.itself, node}} {
			if from.may {
				w.answers(from.ns, from.source, "tcp", external+":80", service+":80 "+from.seen)
			} else {
				w.silent(from.ns, from.source, external+":80")
			}
			w.answers(from.ns, from.source, "tcp", external+":81", service+":80 "+from.seen)
		}
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	}
	again := porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	changed, err := w.syncTable(again, place, serving{Services: append(open, restricted())})
	require.NoError(t, err)
	require.False(t, changed, "a new agent recognises the restriction")
	w.sync(true, append(open, at(external, cluster("tcp", 80)))...)
	w.answers(w.outside, client, "tcp", external+":80", service+":80 "+client)
}

// A client that keeps sending UDP to an external address reaches the current endpoint.
func TestChangedExternalAddresses(t *testing.T) { eachFamily(t, testChangedExternalAddresses) }

func testChangedExternalAddresses(w *world) {
	t := w.T
	w.withExternal()
	conn, err := w.dial(w.outside, client, "udp", external+":80")
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for _, pod := range []string{pod1, pod2} {
		w.sync(true, at(external, local("udp", 80, pod)))
		got, err := answer(conn, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, w.text(pod+":8080 "+client), got)
	}
	restricted := at(external, local("udp", 80, pod2))
	restricted.Restricted, restricted.Sources = true, []netip.Prefix{netip.MustParsePrefix(client + "/32")}
	w.sync(true, restricted)
	got, err := answer(conn, patience.Patience)
	require.NoError(t, err)
	require.Equal(t, w.text(pod2+":8080 "+client), got)
	restricted.Sources = []netip.Prefix{netip.MustParsePrefix(other + "/32")}
	w.sync(true, restricted)
	_, err = answer(conn, 100*time.Millisecond)
	require.Error(t, err, "the client is in no range any more")
	restricted.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	w.sync(true, restricted) // a range that contains the former one
	_, err = answer(conn, patience.Patience)
	require.NoError(t, err)
	w.sync(true)
	_, err = answer(conn, 100*time.Millisecond)
	require.Error(t, err, "the port is gone")
}

// silent requires that nothing answers.
func (w *world) silent(from netns.NsHandle, source, at string) {
	w.Helper()
	d := &net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(w.text(source))}}
	at = w.text(at)
	require.NoError(w, links.Inside(from, func() error {
		_, err := d.DialContext(w.Context(), "tcp", at)
		var timeout net.Error
		require.ErrorAs(w, err, &timeout, at)
		require.True(w, timeout.Timeout(), "%s: %v", at, err)
		return nil
	}))
}

// Thousands of ports are written in several transactions, and a changed port changes its own elements.
func TestManyPorts(t *testing.T) {
	w := newWorld(t)
	var ports []nodeports.Port
	for i := range 2500 {
		ports = append(ports, cluster("tcp", uint16(30000+i)))
	}
	ports = append(ports, local("tcp", 32700, pod1), local("udp", 32700, pod1, pod2))
	w.sync(true, ports...)
	w.sync(false, ports...)
	w.answers(w.outside, client, "tcp", node+":30000", service+":80 "+client)
	w.answers(w.outside, client, "tcp", node+":32499", service+":80 "+client)
	ports[7].Number = 32600
	w.sync(true, ports...)
	w.answers(w.outside, client, "tcp", node+":32600", service+":80 "+client)
	_, err := w.ask(w.outside, client, "tcp", node+":30007")
	require.ErrorContains(t, err, "refused")
	w.sync(true)
}

// An invalid port or endpoint is an error, and does not keep the others from being served.
func TestInvalidPorts(t *testing.T) {
	w := newWorld(t)
	every, to := netip.IPv4Unspecified(), netip.MustParseAddrPort("10.96.0.1:80")
	for _, bad := range []nodeports.Port{
		{}, at("fd00::1", cluster("tcp", 80)), at("::", cluster("tcp", 80)), {Protocol: "tcp", Number: 1, Service: to},
		{Address: every, Protocol: "icmp", Number: 1, Service: to}, {Address: every, Protocol: "tcp", Service: to}, {Address: every, Protocol: "tcp", Number: 1},
		{Address: every, Protocol: "tcp", Number: 1, Service: netip.MustParseAddrPort("[fd00::1]:80")},
	} {
		_, err := serving{Services: []nodeports.Port{bad, cluster("tcp", 30080)}}.sync(w.table, place, nil)
		require.ErrorContains(t, err, bad.String())
		w.answers(w.outside, client, "tcp", node+":30080", service+":80 "+client)
	}
	partly := local("tcp", 30081, pod1)
	partly.Endpoints = append(partly.Endpoints, netip.AddrPort{}, netip.MustParseAddrPort("[fd00::1]:8080"))
	_, err := serving{Services: []nodeports.Port{partly}}.sync(w.table, place, nil)
	require.ErrorContains(t, err, "node port tcp 30081: the endpoint [fd00::1]:8080 is not an IPv4 address with a port")
	w.answers(w.outside, client, "tcp", node+":30081", pod1+":8080 "+client)
}

// A service whose endpoint is a node port leads nowhere: what comes from a node in the pod network has been
// through a service.
func TestNoCircle(t *testing.T) { eachFamily(t, testNoCircle) }

func testNoCircle(w *world) {
	t := w.T
	w.sync(true, cluster("tcp", 30080), local("tcp", 30081, pod1))
	for _, at := range []string{node + ":30080", management + ":30080", node + ":30081"} {
		_, err := w.ask(w.pods, "100.96.0.1", "tcp", at)
		require.ErrorContains(t, err, "refused", at)
	}
	w.answers(w.pods, "10.42.0.9", "tcp", node+":30081", pod1+":8080 "+edge)

	gateway, bits := "169.254.192.5", "/32" // of OVN
	if w.six {
		gateway, bits = "fd63:6f65:6272:1::5", "/128"
	}
	w.run(w.pods, "ip addr add "+gateway+bits+" dev lo")
	w.run(w.node, "ip route add "+gateway+" via 100.96.0.1")
	for _, at := range []string{node + ":30080", node + ":30081"} {
		conn, err := w.dial(w.pods, gateway, "tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		require.ErrorContains(t, err, "refused", at)
	}
}

// A port needs an element for its cluster address, and with known endpoints one for their number and one for each.
func TestElements(t *testing.T) { eachFamily(t, testElements) }

func testElements(w *world) {
	t := w.T
	elements := func() int {
		return strings.Count(w.run(w.node, "nft list table ip "+nodeports.TableName), ". 30080")
	}
	for n, p := range map[int]nodeports.Port{
		1: cluster("tcp", 30080), 2: local("tcp", 30080), 3: local("tcp", 30080, pod1), 5: direct("tcp", 30080, pod1, pod2),
	} {
		w.sync(true, p)
		require.Equal(t, n, elements())
	}
}

// Connections of UDP that lead to a former endpoint are forgotten by the next process, if one ends after it
// has changed the table.
func TestUDPPortsOfAFormerProcess(t *testing.T) { eachFamily(t, testUDPPortsOfAFormerProcess) }

func testUDPPortsOfAFormerProcess(w *world) {
	t := w.T
	w.sync(true, local("udp", 30080, pod1), local("udp", 30081, pod1))
	conn, err := w.dial(w.outside, client, "udp", node+":30080")
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	removed, err := w.dial(w.outside, client, "udp", node+":30081")
	require.NoError(t, err)
	defer func() { _ = removed.Close() }()
	for _, c := range []net.Conn{conn, removed} {
		got, err := answer(c, patience.Patience)
		require.NoError(t, err)
		require.Equal(t, w.text(pod1+":8080 "+client), got)
	}
	in := "nft %s element ip " + nodeports.TableName + " %s '{ 0.0.0.0 . udp . %s }'\n"
	w.run(w.node, fmt.Sprintf(in, "delete", "endpoints", "30080 . 0")+fmt.Sprintf(in, "add", "endpoints", "30080 . 0 : "+pod2+" . 8080")+
		fmt.Sprintf(in, "delete", "endpoints", "30081 . 0")+fmt.Sprintf(in, "delete", "balancers", "30081")+fmt.Sprintf(in, "delete", "services", "30081"))
	got, err := answer(conn, patience.Patience)
	require.NoError(t, err)
	require.Equal(t, w.text(pod1+":8080 "+client), got, "the kernel remembers the connection")

	w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
	w.sync(false, local("udp", 30080, pod2))
	got, err = answer(conn, patience.Patience)
	require.NoError(t, err)
	require.Equal(t, w.text(pod2+":8080 "+client), got)
	_, err = answer(removed, patience.Patience)
	require.Error(t, err, "the port is gone")
}

// UDP connections of other programs stay: all while the node has no node ports, and those that do not lead to
// pods or services.
func TestUDPPortsOfOthers(t *testing.T) { eachFamily(t, testUDPPortsOfOthers) }

func testUDPPortsOfOthers(w *world) {
	t := w.T
	elsewhere := "198.51.100.7"
	w.run(w.node, "ip route add "+elsewhere+" via 100.96.0.1; nft add table ip others; "+
		"nft add chain ip others c '{ type nat hook prerouting priority -101; }'; "+
		"nft add rule ip others c udp dport 53 dnat to "+elsewhere+":53; nft add rule ip others c udp dport 30090 dnat to "+pod1+":8080")
	w.run(w.pods, "ip addr add "+elsewhere+"/32 dev lo")
	w.serve(elsewhere + ":53")
	for port, want := range map[string]string{":53": elsewhere + ":53 ", ":30090": pod1 + ":8080 "} {
		w.answers(w.outside, client, "udp", node+port, want+client)
	}
	require.Equal(t, 2, w.connections(node))
	w.sync(false)
	require.Equal(t, 2, w.connections(node))
	w.sync(true, cluster("udp", 30080))
	require.Equal(t, 1, w.connections(node))
}

// When a node leaves the pod network, the kernel forgets the connections that its ports have led, over all protocols, also if another
// process removes the table. Tables of other programs stay.
func TestLeave(t *testing.T) { eachFamily(t, testLeave) }

func testLeave(w *world) {
	t := w.T
	w.run(w.node, "nft add table ip others; nft add chain ip others c '{ type nat hook prerouting priority -101; }'; "+
		"nft add rule ip others c tcp dport 30090 dnat to "+pod1+":8080")
	opened := func() {
		t.Helper()
		w.syncAll(true, hosting, serving{
			Services: []nodeports.Port{cluster("tcp", 30080), direct("udp", 30080, pod1), own(service, local("tcp", 80, pod1))},
			Hosts:    []nodeports.HostPort{host("", "tcp", 8080, pod1)},
		})
		for _, port := range []string{":30080", ":8080", ":30090"} {
			conn, err := w.dial(w.outside, client, "tcp", node+port)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
		}
		w.answers(w.outside, client, "udp", node+":30080", pod1+":8080 "+edge)
		w.answers(w.node, "", "tcp", service+":80", pod1+":8080 "+management)
	}
	for _, another := range []bool{false, true} {
		opened()
		if another {
			w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0"})
		} else {
			w.table.Replace(nil)
		}
		_, err := w.table.Sync(nodeports.Place{}, porttables.Hosts{}, nil)
		require.NoError(t, err)
		require.Zero(t, w.connections(service))
		others := 1
		if another { // one of each round
			others = 2
		}
		require.Equal(t, others, w.connections(node))
	}
}
